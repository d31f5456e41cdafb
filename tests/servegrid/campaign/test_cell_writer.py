"""The run of a cell ends in exactly one row with its verdict, whatever happens."""

from __future__ import annotations

import json
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from servegrid.campaign import cell_writer
from servegrid.campaign.cell_result import CellResult, MeasuredPlan, Outcome
from servegrid.campaign.cell_writer import CellWriter
from servegrid.campaign.results import read
from servegrid.checks.invariance import Invariance
from servegrid.checks.verdict import Correctness, Scores
from servegrid.domain.arrays import TensorMatch
from servegrid.domain.errors import (
    InfeasibleError,
    StepError,
    UnsupportedError,
    UserError,
    WrongAnswerError,
)
from servegrid.domain.values import ArtifactRef, Cell, Endpoint
from servegrid.host import stage_timer
from servegrid.host.stage_timer import waiting, work
from servegrid.loadgen.base import Measurement, Point, Window
from servegrid.loadgen.latency import COMPONENTS
from servegrid.loadgen.measured import MeasuredPoint, PartlyMeasuredError, keep
from servegrid.loadgen.trust import examine

CORRECT = Correctness(
    tensors=(
        TensorMatch(output="s", largest_difference=0.01, excess=0, least_cosine=0.9999, agreement=None),
        TensorMatch(output="e", largest_difference=0.02, excess=0, least_cosine=0.9998, agreement=None),
        TensorMatch(output="n", largest_difference=0.0, excess=0, least_cosine=None, agreement=1.0),
    ),
    scores=Scores(
        metric="f1",
        framework=0.9,
        served=0.875,
        shuffled=0.1,
        drop=0.025,
        all={"f1": 0.875, "exact_match": 0.8},
    ),
    invariance=Invariance(
        neighbour=(
            TensorMatch(output="s", largest_difference=0.001, excess=0, least_cosine=1.0, agreement=None),
        ),
        size=(TensorMatch(output="s", largest_difference=0.002, excess=0, least_cosine=1.0, agreement=None),),
    ),
    clients=16,
    batches={1: 3, 8: 2},
)
ENDPOINT = Endpoint(
    grpc_url="127.0.0.1:1",
    http_url="127.0.0.1:2",
    model="m",
    shm_prefix="p",
    server="embedded",
    server_version="2.51.0",
    server_log="/log",
    backend="hosted",
    load_s=1.5,
    first_request_ms=42.0,
)


def point(batch: int, *throughputs: float) -> MeasuredPoint:
    """A point with these windows."""
    times = (*COMPONENTS, "p50_ms", "p90_ms", "p95_ms", "p99_ms", "avg_ms")
    measurement = Measurement.model_validate(
        dict.fromkeys(times, 1.0)
        | {
            "throughput": throughputs[-1],
            "request_count": 100,
            "windows": [Window(throughput=t, avg_ms=1.0) for t in throughputs],
            "generator": "client",
            "generator_version": "1",
        }
    )
    point = Point(batch=batch, concurrency=1, request_count=50, shared_memory="none", warm_up=True)
    return MeasuredPoint(
        batch=batch,
        concurrency=1,
        measurement=measurement,
        started_at="2026-01-02T03:04:05.000+00:00",
        ended_at="2026-01-02T03:04:15.000+00:00",
        trust=examine(point, measurement),
    )


STABLE = point(1, 100.0, 101.0, 102.0)
SHAKY = point(8, 100.0, 150.0, 100.0)
AGAIN = (
    "servegrid sweep --model bert_large_qa --variant tiny --format ts-trace --precision fp32 "
    "--accelerator none --instances 1 --generator client --profile cpu"
)


def only_row(folder: Path) -> dict[str, Any]:
    """The one row of the one cell that was recorded."""
    cells, _ = read(folder)
    assert cells.height == 1
    return cells.row(0, named=True)


def fill(
    result: CellResult, cell: Cell, online: tuple[MeasuredPoint, ...], offline: tuple[MeasuredPoint, ...]
) -> None:
    result.artifact = ArtifactRef(digest="aa", path="objects/aa", size=1234)
    result.baseline = {1: 9.5}
    result.correctness = CORRECT
    result.measured.append(
        MeasuredPlan(plan=cell.online, serving=cell.dynamic, endpoint=ENDPOINT, points=online)
    )
    result.measured.append(
        MeasuredPlan(plan=cell.offline, serving=cell.static, endpoint=ENDPOINT, points=offline)
    )


def test_a_wrong_answer_while_it_is_measured_fails_the_cell_and_keeps_the_points_before(
    writer: CellWriter, cell: Cell, tmp_path: Path
) -> None:
    with writer.running(cell) as result:
        result.correctness = CORRECT
        with result.measuring(cell.online, cell.dynamic, ENDPOINT):
            keep(STABLE)
            raise PartlyMeasuredError(WrongAnswerError("online: batch of 8: y"))
    row = only_row(tmp_path)
    assert (row["verdict"], row["reason"]) == ("failed_accuracy", "online: batch of 8: y")
    assert read(tmp_path)[1].height == 1


def test_what_the_data_cannot_prove_is_the_reason_of_a_cell_that_passed(
    writer: CellWriter, cell: Cell, tmp_path: Path
) -> None:
    with writer.running(cell) as result:
        fill(result, cell, (STABLE,), (STABLE,))
        assert CORRECT.scores is not None
        scores = CORRECT.scores.model_copy(update={"shuffled": None})
        result.correctness = CORRECT.model_copy(update={"scores": scores})
    row = only_row(tmp_path)
    assert row["verdict"] == "passed"
    assert "one label" in row["reason"]
    assert row["shuffled_metric"] is None


def test_the_share_of_the_proof_is_that_of_the_wall_time(
    writer: CellWriter, cell: Cell, tmp_path: Path
) -> None:
    with writer.running(cell) as result:
        fill(result, cell, (STABLE,), (STABLE,))
        for stage in ("correctness", "online"):
            with work(stage):
                time.sleep(0.05)
                with work("proof"):
                    time.sleep(0.05)
    row = only_row(tmp_path)
    assert 0.5 < row["proof_share"] < 0.8


@pytest.mark.parametrize(
    ("error", "verdict", "reason", "log", "command"),
    [
        (UnsupportedError("no fp16 here"), "unsupported", "no fp16 here", None, None),
        (StepError("broke\ntail", log="/a.log", command="again"), "error", "broke\ntail", "/a.log", "again"),
        (UserError("token: cannot be read"), "error", "token: cannot be read", None, AGAIN),
    ],
)
def test_known_error_in_a_cell_ends_as_its_one_row(
    writer: CellWriter,
    cell: Cell,
    tmp_path: Path,
    error: Exception,
    verdict: str,
    reason: str,
    log: str | None,
    command: str | None,
) -> None:
    with writer.running(cell):
        raise error
    row = only_row(tmp_path)
    found = tuple(row[name] for name in ("verdict", "reason", "log", "command"))
    assert found == (verdict, reason, log, command)
    assert (row["cell"], row["campaign"], row["profile"]) == (cell.name, "c1", "cpu")


def test_out_of_memory_is_infeasible_with_the_largest_batch_that_fits(
    writer: CellWriter, cell: Cell, tmp_path: Path
) -> None:
    with writer.running(cell):
        raise InfeasibleError("out of memory at batch 8", largest_batch=4)
    row = only_row(tmp_path)
    found = tuple(row[name] for name in ("verdict", "reason", "largest_batch", "log"))
    assert found == ("infeasible", "out of memory at batch 8", 4, None)


@pytest.mark.parametrize("error", [ValueError("a bug"), MemoryError(), AssertionError("x")])
def test_any_other_error_keeps_its_traceback_and_the_command_of_the_cell(
    writer: CellWriter, cell: Cell, tmp_path: Path, error: Exception
) -> None:
    with writer.running(cell):
        raise error
    row = only_row(tmp_path)
    assert row["verdict"] == "error"
    assert row["reason"].endswith(f"{type(error).__name__}: {error}")
    assert "Traceback" in Path(row["log"]).read_text()
    assert row["command"] == AGAIN


def test_points_before_an_error_are_kept(writer: CellWriter, cell: Cell, tmp_path: Path) -> None:
    with writer.running(cell) as result, result.measuring(cell.online, cell.dynamic, ENDPOINT):
        keep(STABLE)
        raise PartlyMeasuredError(StepError("the server went away", log="/a.log"))
    cells, measurements = read(tmp_path)
    assert cells["verdict"].to_list() == ["error"]
    assert cells["log"].to_list() == ["/a.log"]
    assert measurements["throughput"].to_list() == [102.0]


@pytest.mark.parametrize("interrupt", [KeyboardInterrupt, SystemExit, GeneratorExit])
def test_interrupt_passes_through_and_the_points_before_it_are_kept(
    writer: CellWriter, cell: Cell, tmp_path: Path, interrupt: type[BaseException]
) -> None:
    with (
        pytest.raises(interrupt),
        writer.running(cell) as result,
        result.measuring(cell.online, cell.dynamic, ENDPOINT),
    ):
        keep(STABLE)
        raise interrupt
    cells, measurements = read(tmp_path)
    assert cells["verdict"].to_list() == ["skipped"]
    assert measurements["throughput"].to_list() == [102.0]


def test_cell_after_an_error_is_recorded_too(writer: CellWriter, cell: Cell, tmp_path: Path) -> None:
    with writer.running(cell):
        raise ValueError("first")
    other = cell.model_copy(update={"profile": "other"})
    with writer.running(other) as result:
        fill(result, other, (STABLE,), (STABLE,))
    assert read(tmp_path)[0]["verdict"].to_list() == ["error", "passed"]


def test_correct_and_stable_cell_passes(writer: CellWriter, cell: Cell, tmp_path: Path) -> None:
    with writer.running(cell) as result:
        fill(result, cell, (STABLE, SHAKY), (SHAKY, STABLE))
    row = only_row(tmp_path)
    assert (row["verdict"], row["reason"], row["log"]) == ("passed", "", None)
    assert (row["framework_metric"], row["served_metric"], row["shuffled_metric"]) == (0.9, 0.875, 0.1)
    assert row["metric_drop"] == pytest.approx(0.025)
    assert (row["largest_difference"], row["least_cosine"], row["invariance"]) == (0.02, 0.9998, 0.002)
    assert (row["load_clients"], row["load_batches"]) == (16, '{"1": 3, "8": 2}')
    assert (row["artifact_bytes"], json.loads(row["versions"])) == (1234, {"torch": "2.13"})


@pytest.mark.parametrize(
    ("online", "offline", "scenario"),
    [((SHAKY,), (STABLE,), "online"), ((STABLE,), (SHAKY, SHAKY), "offline"), ((), (STABLE,), "online")],
)
def test_cell_without_a_stable_point_in_a_scenario_is_unstable_and_keeps_its_numbers(
    writer: CellWriter,
    cell: Cell,
    tmp_path: Path,
    online: tuple[MeasuredPoint, ...],
    offline: tuple[MeasuredPoint, ...],
    scenario: str,
) -> None:
    with writer.running(cell) as result:
        fill(result, cell, online, offline)
    row = only_row(tmp_path)
    assert row["verdict"] == "unstable"
    assert f"no {scenario} point" in row["reason"]
    assert read(tmp_path)[1].height == len(online) + len(offline)


def test_wrong_answers_fail_the_cell_whatever_was_measured(
    writer: CellWriter, cell: Cell, tmp_path: Path
) -> None:
    with writer.running(cell) as result:
        fill(result, cell, (SHAKY,), (SHAKY,))
        result.correctness = CORRECT.model_copy(update={"failures": ("f1 too low", "invariance")})
    row = only_row(tmp_path)
    assert (row["verdict"], row["reason"]) == ("failed_accuracy", "f1 too low; invariance")
    assert row["served_metric"] == 0.875


def test_cell_without_a_check_of_accuracy_does_not_pass(
    writer: CellWriter, cell: Cell, tmp_path: Path
) -> None:
    with writer.running(cell) as result:
        result.measured.append(
            MeasuredPlan(plan=cell.online, serving=cell.dynamic, endpoint=ENDPOINT, points=(STABLE,))
        )
    assert only_row(tmp_path)["verdict"] == "error"


def test_points_measured_before_an_error_are_kept(writer: CellWriter, cell: Cell, tmp_path: Path) -> None:
    with writer.running(cell) as result:
        fill(result, cell, (STABLE,), (STABLE,))
        raise StepError("the server died")
    assert only_row(tmp_path)["verdict"] == "error"
    assert read(tmp_path)[1].height == 2


def test_row_of_a_point_has_its_serving_load_and_measurement(
    writer: CellWriter, cell: Cell, tmp_path: Path
) -> None:
    with writer.running(cell) as result:
        fill(result, cell, (STABLE,), (STABLE, SHAKY))
    online, first, second = read(tmp_path)[1].rows(named=True)
    assert (online["scenario"], online["batching"]) == ("online", "dynamic")
    assert (first["scenario"], first["batching"]) == ("offline", "static")
    assert (first["batch"], first["stable"], first["throughput"]) == (1, True, 102.0)
    assert (second["batch"], second["stable"]) == (8, False)
    assert second["windows_throughput"] == [100.0, 150.0, 100.0]
    assert (first["started_at"], first["ended_at"]) == (STABLE.started_at, STABLE.ended_at)
    assert ("stability" in first["failed_checks"], "stability" in second["failed_checks"]) == (False, True)
    assert (first["flow_run"], first["power_w"]) == ("r1", None)
    assert (first["load_s"], first["first_request_ms"], first["server_version"]) == (1.5, 42.0, "2.51.0")
    # The framework was measured at batch 1, and is in the rows of offline points only.
    assert [row["framework_avg_ms"] for row in (online, first, second)] == [None, 9.5, None]


def test_rows_name_the_card_the_worker_and_every_wait_with_a_fake_card(
    writer: CellWriter, cell: Cell, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cell_writer, "card_uuid", lambda: "GPU-0af1")
    monkeypatch.setattr(stage_timer, "SHORT_S", 0.0)
    on_card = cell.model_copy(update={"dynamic": cell.dynamic.model_copy(update={"device_kind": "gpu"})})
    on_worker = replace(writer, worker="worker-2")
    with on_worker.running(on_card) as result:
        with waiting("h200, alone"):
            pass
        fill(result, on_card, (STABLE,), (STABLE,))
    row = only_row(tmp_path)
    for found in (row, *read(tmp_path)[1].rows(named=True)):
        assert (found["card_uuid"], found["worker"]) == ("GPU-0af1", "worker-2")
    (wait,) = json.loads(row["waits"])
    assert wait["what"] == "h200, alone"
    assert wait["seconds"] >= 0
    assert row["started_at"] <= wait["began_at"] <= row["ended_at"]


def test_cell_of_the_cpu_names_no_card_and_without_a_wait_has_none(
    writer: CellWriter, cell: Cell, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cell_writer, "card_uuid", lambda: "GPU-0af1")
    with writer.running(cell) as result:
        fill(result, cell, (STABLE,), (STABLE,))
    row = only_row(tmp_path)
    assert (row["card_uuid"], row["worker"], row["waits"]) == (None, None, None)


def test_time_outside_the_stages_is_orchestration(writer: CellWriter, cell: Cell, tmp_path: Path) -> None:
    with writer.running(cell) as result:
        for stage, seconds in (("export", 0.1), ("server_start", 0.2), ("server_stop", 0.1)):
            with work(stage):
                time.sleep(seconds)
        time.sleep(0.15)
        fill(result, cell, (STABLE,), (STABLE,))
    row = only_row(tmp_path)
    assert json.loads(row["stage_s"]) == {"export": pytest.approx(0.1, abs=0.1)}
    assert 0.3 <= row["server_s"] < 1
    assert row["orchestration_s"] >= 0.15
    total = row["orchestration_s"] + row["server_s"] + sum(json.loads(row["stage_s"]).values())
    assert total == pytest.approx(row["wall_s"], abs=0.01)


def test_excluded_cell_is_unsupported_with_the_reason(writer: CellWriter, cell: Cell, tmp_path: Path) -> None:
    writer.not_run(cell, Outcome(verdict="unsupported", reason="no fp16"))
    row = only_row(tmp_path)
    assert (row["cell"], row["verdict"], row["reason"]) == (cell.name, "unsupported", "no fp16")
    assert (row["model"], row["format"], row["wall_s"]) == ("bert_large_qa", cell.product.format, None)
