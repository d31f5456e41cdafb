"""The main job for real: BERT from checkpoint to report, twice."""

from __future__ import annotations

import json
import socket
import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from servegrid.campaign import results
from servegrid.domain.root import ROOT
from servegrid.host import proc
from servegrid.loadgen.generators import GENERATORS

STAGES = {
    "prepare": 1, "export": 1, "convert": 1, "profile_data": 1, "reference": 1, "baseline": 1,
    "converted_answers": 1, "ceilings": 1, "configure": 1, "deploy": 2, "correctness": 1, "performance": 2,
}  # fmt: skip
"""Task runs of one cell; `deploy` and `performance` once for each serving."""
BUILD = ("prepare", "export", "convert", "profile_data", "reference", "converted_answers")
PRECISIONS = ("fp32", "fp16", "int8")
CELLS = {f"bert_large_qa-tiny-onnx-{precision}-b4-c4": precision for precision in PRECISIONS}
ASKED = ("--format", "onnx", "--accelerator", "none", *(w for p in PRECISIONS for w in ("--precision", p)))
SHORT = ("--window-s", "0.3", "--request-count", "10")
LIMITS = ("--max-batch-size", "4", "--max-concurrency", "4", "--fixed-points", *SHORT)
"""Two points a scenario and cell, in short windows."""
MORE = {"fp16": {"convert": 1}, "int8": {"profile_data": 1}}
"""Stages that a precision adds: fp16 is made from the fp32 graph, int8 is calibrated."""


@pytest.fixture(scope="module")
def sweep(make_command: Callable[[Path], Any]) -> Any:
    """A finished sweep of the ONNX cells: the command, and what it printed."""
    command = make_command(ROOT / "models")
    code, output = command.run("sweep", *ASKED, *LIMITS, timeout=500)
    assert code == 0, output
    return command, output


@pytest.fixture(scope="module")
def tables(sweep: Any) -> tuple[pl.DataFrame, pl.DataFrame]:
    command, _ = sweep
    return (
        pl.read_parquet(command.campaign / "cells.parquet"),
        pl.read_parquet(command.campaign / "measurements.parquet"),
    )


def test_every_cell_is_correct_and_measured(tables: tuple[pl.DataFrame, pl.DataFrame]) -> None:
    cells, measurements = tables
    assert set(cells["cell"]) == set(CELLS)
    assert set(cells["verdict"]) <= {"passed", "unstable"}, cells["reason"].to_list()
    assert (cells["framework_metric"] >= 0.8).all()
    assert (cells["served_metric"] >= 0.8).all()
    assert (cells["shuffled_metric"] < 0.2).all()
    points = Counter(measurements.select("cell", "scenario").iter_rows())
    assert points == {(cell, scenario): 2 for cell in CELLS for scenario in ("offline", "online")}


def test_lower_precisions_are_smaller_really_differ_and_keep_the_metric(
    tables: tuple[pl.DataFrame, pl.DataFrame],
) -> None:
    cells, _ = tables
    by_precision = {row["precision"]: row for row in cells.iter_rows(named=True)}
    full = by_precision["fp32"]
    for precision, least, most in (("fp16", 0.4, 0.65), ("int8", 0.25, 0.5)):
        row = by_precision[precision]
        assert least < row["artifact_bytes"] / full["artifact_bytes"] < most, precision
        assert row["largest_difference"] > 10 * full["largest_difference"], precision
        assert row["metric_drop"] < 0.01, precision


def test_measurements_are_whole_and_consistent(sweep: Any, tables: tuple[pl.DataFrame, pl.DataFrame]) -> None:
    command, _ = sweep
    _, measurements = tables
    wanted = "client" if GENERATORS["perf_analyzer"].problem(command.site) else "perf_analyzer"
    assert set(measurements["generator"]) == {wanted}
    numbers = measurements.select(*results.MEASURED)
    assert numbers.null_count().sum_horizontal().item() == 0
    assert (measurements["request_count"] >= 3 * measurements["minimum_request_count"]).all()
    littles_law = pl.col("throughput") * pl.col("avg_ms") / 1e3 / (pl.col("concurrency") * pl.col("batch"))
    ratios = measurements.select(littles_law).to_series()
    assert ratios.is_between(0.8, 1.2).all(), ratios.to_list()
    offline = measurements.filter(pl.col("scenario") == "offline")
    assert (offline["framework_avg_ms"] > 0).all()
    assert set(measurements["limit"]) <= {"compute", "memory"}
    assert measurements["share_of_limit"].is_between(1e-4, 1.0).all(), measurements["share_of_limit"]
    assert set(offline["batching"]) == {"static"}
    assert set(measurements.filter(pl.col("scenario") == "online")["batching"]) == {"dynamic"}


def test_every_file_of_the_campaign_is_there(sweep: Any) -> None:
    command, output = sweep
    for name in ("rows.jsonl", "cells.parquet", "measurements.parquet", "report.md", "report.html"):
        assert (command.campaign / name).stat().st_size > 0
    assert str(command.campaign / "report.html") in output
    for scenario in ("offline", "online"):
        table = pl.read_csv(command.campaign / f"{scenario}.csv")
        assert table.columns == [*results.PUBLISHED_KEYS, *results.MEASURED.values()]
        assert table.height == 6
        assert set(table["sequence_length"]) == {64}
    assert "orchestration" in (command.campaign / "report.md").read_text()
    row = json.loads((command.campaign / "rows.jsonl").read_text().splitlines()[0])
    assert json.loads(row["versions"])["onnxruntime"]


def test_the_api_shows_one_task_run_a_stage_and_cell(sweep: Any, api: Any) -> None:
    campaign, runs = sweep[0].campaign.name, api.task_runs("bert_large_qa")
    for cell, precision in CELLS.items():
        more = Counter(MORE.get(precision, {}))
        of_cell = [run for run in runs if run["name"].endswith(cell)]
        assert Counter(run["name"].split()[0] for run in of_cell) == Counter(STAGES) + more
        flow_runs = api.post("flow_runs/filter", {"flow_runs": {"name": {"any_": [cell]}}})
        assert set(flow_runs[0]["tags"]) == {campaign, "bert_large_qa", "onnx", precision, "cpu"}
    shared = [run for run in runs if run["name"].split()[0] in ("prepare", "export", "profile_data")]
    assert Counter(run["state"]["name"] for run in shared) == {"Completed": 4, "Cached": 6}


def test_campaign_and_run_send_heartbeats_and_cells_none(sweep: Any, api: Any) -> None:
    tag = {"id": [f"prefect.tag.{sweep[0].campaign.name}"]}
    wanted = {"event": {"name": ["prefect.flow-run.heartbeat"]}, "related": tag}
    events = api.post("events/filter", {"filter": wanted})["events"]
    names = {event["resource"]["prefect.resource.name"] for event in events}
    assert names == {"bert_large_qa (tiny) on cpu", "cpu"}


def test_the_ui_shows_a_small_table_the_summary_and_a_link(sweep: Any, api: Any) -> None:
    command, _ = sweep
    about = {"artifacts": {"key": {"any_": ["report", "report-html", "cells-cpu"]}}}
    name = command.campaign.name
    found = {a["key"]: a["data"] for a in api.post("artifacts/filter", about) if name in json.dumps(a)}
    assert found["report"].startswith(f"# servegrid campaign {name}") and "## Offline" not in found["report"]
    assert "3 passed" in found["report"] or "unstable" in found["report"]
    assert (command.campaign / "report.html").as_uri() in found["report-html"]
    assert {row["cell"] for row in json.loads(found["cells-cpu"])} == set(CELLS)


def test_a_second_sweep_builds_nothing_and_measures_again(sweep: Any, api: Any) -> None:
    command, _ = sweep
    before = len(api.task_runs("bert_large_qa"))
    one = ("--format", "onnx", "--precision", "fp32", "--accelerator", "none")
    limits = ("--max-batch-size", "4", "--max-concurrency", "2", "--request-rate", "20", *SHORT)
    code, output = command.run("sweep", *one, *limits, "--generator", "client")
    assert code == 0, output
    runs = api.task_runs("bert_large_qa")[before:]
    states = {run["name"].split()[0]: run["state"]["name"] for run in runs}
    assert {states[stage] for stage in BUILD} == {"Cached"}
    assert {states[stage] for stage in ("baseline", "performance")} == {"Completed"}
    measurements = pl.read_parquet(command.campaign / "measurements.parquet")
    assert set(measurements["generator"]) == {"client"}
    assert measurements.height == 5
    assert "next is concurrency 2: doubling" in output
    online = measurements.filter(pl.col("scenario") == "online")
    assert online["concurrency"].to_list() == [1, 2, None]
    assert online["request_rate"].to_list() == [None, None, 20.0]
    assert online["distribution"].to_list() == [None, None, "poisson"]
    assert online["knee"].sum() == 1
    columns = ("repeats", "throughput_spread", "latency_spread", "component_residual_ms", "generator_cores")
    assert (
        measurements.select("failed_checks", "client_limited", *columns).null_count().sum_horizontal()[0] == 0
    )
    assert online["littles_law_residual"].is_null().to_list() == [False, False, True]
    assert "20/s" in (command.campaign / "report.md").read_text()


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def test_bundle_of_a_cell_is_served_by_a_bare_server_and_answers_its_own_client(
    sweep: Any, tmp_path: Path
) -> None:
    command, _ = sweep
    folder = tmp_path / "bundle"
    cells = pl.read_parquet(command.campaign / "cells.parquet")
    (cell,) = cells.filter(pl.col("precision") == "fp32")["cell"]
    code, output = command.run("bundle", cell, str(folder))
    assert code == 0, output
    ports = {f"{kind}_PORT": str(free_port()) for kind in ("HTTP", "GRPC", "METRICS")}
    start = ["sh", str(folder / "start-embedded.sh")]
    with proc.running(start, log_path=tmp_path / "server.log", env=ports, stop_s=15):
        client = [sys.executable, str(folder / "client.py"), "--url", f"127.0.0.1:{ports['GRPC_PORT']}"]
        done = subprocess.run(client, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stdout + done.stderr + (tmp_path / "server.log").read_text()
    assert done.stdout.splitlines()[-1] == "agrees"
    certificate = json.loads((folder / "certificate.json").read_text())
    assert certificate["served_metric"] >= 0.8 and certificate["shuffled_metric"] < 0.2
    names = {path.relative_to(folder).as_posix() for path in folder.rglob("*")}
    assert {
        "report.html",
        "versions.json",
        "start-docker.sh",
        "model/client.py",
        "model/spans.py",
    } <= names
    assert "model_repository/bert_large_qa/config.pbtxt" in names
    assert not any(path.is_symlink() for path in folder.rglob("*"))
    subprocess.run(["sha256sum", "--quiet", "--check", "SHA256SUMS"], cwd=folder, check=True)
