"""Rows of a campaign: what was written is read back, whatever happened after."""

from __future__ import annotations

import json
import math
import subprocess
import sys
from pathlib import Path

import polars as pl
import pytest

from servegrid.campaign import results, row_columns
from servegrid.campaign.results import CELLS, MEASUREMENTS, Row, Writer, published_columns, read
from servegrid.domain.errors import UserError
from servegrid.domain.values import Cell, LoadPlan, Product, Serving
from servegrid.host.environment import host
from servegrid.loadgen.base import Measurement

# NVIDIA's published tables: model, cell, point, then what was measured
PUBLISHED = (
    "model,scenario,gpu,format,precision,accelerator,max_batch_size,instances,sequence_length,batch,"
    "concurrency,throughput,client_send,network_server_send_recv,server_queue,server_compute_input,"
    "server_compute_infer,server_compute_output,client_recv,p50,p90,p95,p99,avg"
)
PRODUCT = Product(
    model="toy",
    variant="tiny",
    parameters={"max_seq_length": 64, "a": 1.5},
    export_format="onnx",
    format="onnx",
    precision="fp16",
    opset=13,
    triton_release="24.10",
)
POINT: Row = {
    "cell": "a",
    "scenario": "offline",
    "batch": 8,
    "concurrency": 1,
    "parameters": '{"max_seq_length": 64}',
    "throughput": 100.0,
    "client_send_ms": 0.25,
    "avg_ms": 12.5,
    "stable": True,
}


def test_rows_are_read_back_as_they_were_written(tmp_path: Path) -> None:
    writer = Writer(tmp_path / "results" / "c")
    writer.append("cell", {"cell": "a", "verdict": "passed", "reason": "ü\n|", "artifact_bytes": 2**40})
    writer.append("measurement", POINT | {"windows_throughput": [99.0, 100.0], "opset": None})
    Writer(tmp_path / "results" / "c").append("cell", {"cell": "b"})
    cells, measurements = read(tmp_path / "results" / "c")
    assert cells["cell"].to_list() == ["a", "b"]
    assert cells["reason"].to_list() == ["ü\n|", None]
    assert cells["artifact_bytes"].to_list() == [2**40, None]
    assert measurements.row(0, named=True)["windows_throughput"] == [99.0, 100.0]
    assert measurements.row(0, named=True)["server_queue_ms"] is None


def test_infinite_numbers_are_null_in_rows_and_are_read_from_older_rows(tmp_path: Path) -> None:
    row: Row = {"cell": "a", "largest_difference": math.inf, "metric_drop": math.nan, "wall_s": 1.0}
    Writer(tmp_path).append("cell", row)
    Writer(tmp_path).append("measurement", POINT | {"windows_throughput": [1.0, -math.inf]})
    for line in (tmp_path / "rows.jsonl").read_text().splitlines():
        json.loads(line, parse_constant=pytest.fail)
    with (tmp_path / "rows.jsonl").open("a") as file:
        file.write('{"kind": "cell", "cell": "old", "largest_difference": Infinity}\n')
    cells, measurements = read(tmp_path)
    assert cells["largest_difference"].to_list() == [None, math.inf]
    assert cells["metric_drop"].to_list() == [None, None] and cells["wall_s"].to_list() == [1.0, None]
    assert measurements["windows_throughput"].to_list() == [[1.0, None]]


@pytest.mark.parametrize("kept", [1, 20, -1])
def test_line_that_a_crash_cut_off_is_left_out(tmp_path: Path, kept: int) -> None:
    writer = Writer(tmp_path)
    writer.append("cell", {"cell": "a"})
    whole = (tmp_path / "rows.jsonl").read_bytes()
    writer.append("cell", {"cell": "torn"})
    last = (tmp_path / "rows.jsonl").read_bytes()[len(whole) : -1]
    (tmp_path / "rows.jsonl").write_bytes(whole + last[:kept])
    assert read(tmp_path)[0]["cell"].to_list() == ["a"]


def test_row_written_after_a_crash_that_cut_a_line_off_is_kept(tmp_path: Path) -> None:
    Writer(tmp_path).append("cell", {"cell": "a"})
    with (tmp_path / "rows.jsonl").open("a") as file:
        file.write('{"kind": "cell", "ce')
    Writer(tmp_path).append("cell", {"cell": "b"})
    assert read(tmp_path)[0]["cell"].to_list() == ["a", "b"]


@pytest.mark.parametrize("text", ["", "{", "[]", "1", '{"f1": "x"}', {"f1": 1.0}])
def test_value_that_is_no_json_object_becomes_null_with_a_warning(
    tmp_path: Path, text: object, caplog: pytest.LogCaptureFixture
) -> None:
    Writer(tmp_path).append("cell", {"cell": "a", "metrics": text, "versions": '{"torch": "2.13"}'})
    assert read(tmp_path)[0].select("cell", "metrics", "versions").rows() == [
        ("a", None, '{"torch": "2.13"}')
    ]
    assert "row of 'a': metrics holds no such object" in caplog.text


def run(verdict: str, flow_run: str, throughput: float) -> list[tuple[results.Kind, Row]]:
    """The rows of one run of the cell `a`, in the order in which they are written."""
    who = {"cell": "a", "profile": "card", "flow_run": flow_run}
    return [("measurement", POINT | who | {"throughput": throughput}), ("cell", who | {"verdict": verdict})]


@pytest.mark.parametrize(
    ("verdicts", "stands"),
    [
        (("skipped", "passed"), 1),
        (("error", "unstable"), 1),
        (("passed", "skipped"), 0),
        (("failed_accuracy", "error"), 0),
        (("error", "skipped"), 1),
        (("passed", "passed"), 0),
    ],
)
def test_one_row_of_a_cell_counts_with_the_measurements_of_its_run(
    tmp_path: Path, verdicts: tuple[str, ...], stands: int
) -> None:
    for number, verdict in enumerate(verdicts):
        Writer(tmp_path).append_all(run(verdict, f"run {number}", float(number)))
    Writer(tmp_path).append_all([("cell", {"cell": "a", "profile": "other", "verdict": "skipped"})])
    cells, measurements = read(tmp_path)
    assert cells.select("profile", "verdict").rows() == [("card", verdicts[stands]), ("other", "skipped")]
    assert measurements["throughput"].to_list() == [float(stands)]
    settled = verdicts[stands] in results.SETTLED
    assert results.finished(tmp_path) == ({("a", "card")} if settled else set())


def test_nothing_is_finished_before_the_first_row(tmp_path: Path) -> None:
    assert results.finished(tmp_path / "no-such-campaign") == set()


def test_rows_of_a_killed_run_do_not_count_after_the_next_run(tmp_path: Path) -> None:
    Writer(tmp_path).append_all(run("passed", "killed", 1.0)[:1])
    Writer(tmp_path).append_all(run("passed", "next", 2.0))
    assert read(tmp_path)[1]["throughput"].to_list() == [2.0]


APPEND = """
import sys
from pathlib import Path
from servegrid.campaign.results import Writer
for number in range(50):
    rows = [("cell", {"cell": f"{sys.argv[2]}-{number}-{i}", "reason": "x" * 5000}) for i in range(3)]
    Writer(Path(sys.argv[1])).append_all(rows)
"""


def test_many_processes_append_to_one_campaign(tmp_path: Path) -> None:
    writers = [subprocess.Popen([sys.executable, "-c", APPEND, str(tmp_path), str(n)]) for n in range(3)]
    assert [writer.wait(timeout=60) for writer in writers] == [0, 0, 0]
    names = read(tmp_path)[0]["cell"].to_list()
    assert len(names) == len(set(names)) == 450
    for name in names[::3]:  # what belongs together lies together
        where, group = names.index(name), name.removesuffix("-0")
        assert names[where : where + 3] == [f"{group}-{i}" for i in range(3)]


def test_row_with_a_column_that_does_not_exist_is_refused(tmp_path: Path) -> None:
    with pytest.raises(AssertionError, match="speed"):
        Writer(tmp_path).append("measurement", POINT | {"speed": 1})
    assert not (tmp_path / "rows.jsonl").exists()


def test_campaign_without_rows_of_a_kind_has_its_columns(tmp_path: Path) -> None:
    Writer(tmp_path).append("cell", {"cell": "a"})
    cells, measurements = read(tmp_path)
    assert dict(cells.schema) == CELLS
    assert dict(measurements.schema) == MEASUREMENTS
    assert measurements.is_empty()


def test_unknown_campaign_names_the_nearest_and_the_newest(tmp_path: Path) -> None:
    for name in ("20260103-x", "20260101-x", "20260104-x", "20260102-x"):
        Writer(tmp_path / name).append("cell", {"cell": "a"})
    (tmp_path / "20269999-empty").mkdir()
    with pytest.raises(UserError) as caught:
        read(tmp_path / "20260104-y")
    message, _, known = str(caught.value).partition("known: ")
    assert str(tmp_path) in message and "'20260104-y'" in message
    assert "did you mean '20260104-x'" in message
    assert known == "20260102-x, 20260104-x, 20260101-x, 20260103-x", "the last written first"


def test_unknown_campaign_without_any_other_says_so(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="known: none"):
        read(tmp_path / "results" / "c")


# Columns -----------------------------------------------------------------------------------------------


def test_every_field_of_a_product_is_a_column_of_both_tables() -> None:
    assert set(Product.model_fields) <= set(CELLS)
    assert set(Product.model_fields) <= set(MEASUREMENTS)


def test_every_field_of_a_serving_and_a_measurement_is_a_column() -> None:
    assert set(Serving.model_fields) <= set(MEASUREMENTS)
    assert set(Measurement.model_fields) - {"windows", "wrong_answers"} <= set(MEASUREMENTS)


def test_rows_of_a_cell_fit_the_columns_and_keep_their_values(tmp_path: Path) -> None:
    serving = Serving(batching="dynamic", max_batch_size=8, preferred_batch_sizes=(4, 8))
    plan = LoadPlan(scenario="online", batch_sizes=(1,), concurrency=(1, 4), generator="client")
    cell = Cell(product=PRODUCT, static=serving, dynamic=serving, offline=plan, online=plan, profile="cpu")
    cell = cell.model_copy(update={"settings": ("serving.max_batch_size=8",)})
    head = row_columns.common("c", cell, host(), {"torch": "2"})
    Writer(tmp_path).append("cell", head | row_columns.cell_columns(cell))
    Writer(tmp_path).append(
        "measurement", head | row_columns.serving_columns(serving) | row_columns.plan_columns(plan)
    )
    cells, measurements = read(tmp_path)
    row = measurements.row(0, named=True)
    assert {name: row[name] for name in Product.model_fields if name != "parameters"} == PRODUCT.model_dump(
        exclude={"parameters"}
    )
    assert row["parameters"] == '{"a": 1.5, "max_seq_length": 64}'
    assert row["settings"] == ["serving.max_batch_size=8"]
    assert (row["cell"], row["profile"]) == (cell.name, "cpu")
    assert (row["preferred_batch_sizes"], row["minimum_request_count"]) == ([4, 8], 50)
    assert row["minimum_window_s"] == 1.0
    assert Serving.model_validate_json(cells["dynamic"][0]) == serving
    assert LoadPlan.model_validate_json(cells["online"][0]) == plan


def test_older_row_with_a_removed_column_is_read(tmp_path: Path) -> None:
    (tmp_path / "rows.jsonl").write_text(json.dumps({"kind": "measurement", "a_removed_column": "x"} | POINT))
    (row,) = read(tmp_path)[1].rows(named=True)
    assert "a_removed_column" not in row
    assert row["throughput"] == POINT["throughput"]


def test_published_columns_equal_those_of_the_published_tables(tmp_path: Path) -> None:
    Writer(tmp_path).append("measurement", POINT)
    Writer(tmp_path).append("measurement", POINT | {"scenario": "online"})
    found = published_columns(read(tmp_path)[1], "offline")
    assert found.columns == PUBLISHED.split(",")
    row = found.row(0, named=True)
    assert found.height == 1
    assert (row["sequence_length"], row["batch"], row["throughput"]) == (64, 8, 100.0)
    assert (row["client_send"], row["avg"], row["p50"]) == (0.25, 12.5, None)


def test_published_columns_of_a_model_without_a_sequence_are_empty_there(tmp_path: Path) -> None:
    Writer(tmp_path).append("measurement", POINT | {"parameters": "{}"})
    assert published_columns(read(tmp_path)[1], "offline")["sequence_length"].to_list() == [None]


def test_published_columns_of_no_points_have_the_header() -> None:
    found = published_columns(pl.DataFrame(schema=MEASUREMENTS), "online")
    assert found.write_csv() == PUBLISHED + "\n"
