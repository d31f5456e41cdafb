"""Writes the rows of cells: one with the verdict, and one for each measured point."""

from __future__ import annotations

import contextlib
import json
import logging
import os
import shlex
import time
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from servegrid.campaign.cell_result import CellResult, MeasuredPlan, Outcome
from servegrid.campaign.columns import to_json
from servegrid.campaign.layout import CampaignLayout
from servegrid.campaign.results import Kind, Row, Writer
from servegrid.campaign.row_columns import (
    cell_columns,
    common,
    plan_columns,
    roofline_columns,
    serving_columns,
)
from servegrid.checks.verdict import Correctness
from servegrid.domain.errors import (
    InfeasibleError,
    StepError,
    UnsupportedError,
    UserError,
    WrongAnswerError,
    refusal,
)
from servegrid.domain.values import Cell
from servegrid.host.cards import card_uuid
from servegrid.host.environment import Host
from servegrid.host.files import write_atomic
from servegrid.host.stage_timer import collecting, collecting_waits, now
from servegrid.loadgen.measured import MeasuredPoint
from servegrid.plan.options import SweepOptions

log = logging.getLogger("servegrid")

PROOF = ("correctness", "proof")
"""Stages that check answers."""


@dataclass(frozen=True)
class CellWriter:
    """Writes the cells of one `qualify` run, whose flow run has the id `run`, on the Prefect worker of that
    name; the paths of its options are absolute."""

    writer: Writer
    campaign: str
    host: Host
    versions: dict[str, str]
    options: SweepOptions
    run: str
    worker: str | None = None

    def not_run(self, cell: Cell, outcome: Outcome) -> None:
        """Write a cell that does not run: a rule excludes it, or the campaign ended before."""
        self.writer.append("cell", self._head(cell) | cell_columns(cell) | outcome.model_dump())
        log.info("%s: %s", cell.name, outcome.line)

    @contextmanager
    def running(self, cell: Cell) -> Iterator[CellResult]:
        """Run a cell in the block and write exactly one row of it, whatever happens; only an interrupt
        passes, and the cell is `skipped` with the points that it has."""
        result = CellResult()
        began, start = now(), time.perf_counter()
        with collecting() as stages, collecting_waits() as waits:
            try:
                try:
                    yield result
                    result.outcome = result.judge()
                except Exception as error:
                    if isinstance(error, InfeasibleError):
                        result.largest_batch = error.largest_batch
                    result.outcome = self._failed(cell, error)
            finally:
                outcome = result.outcome or Outcome(verdict="skipped", reason="interrupted")
                times = _times(stages, time.perf_counter() - start)
                waited = to_json([asdict(wait) for wait in waits]) if waits else None
                span = {"started_at": began, "ended_at": now(), "waits": waited}
                log.info("%s: %s", cell.name, outcome.line)  # before the rows: a full disk may refuse them
                self._write(cell, result, span | times | outcome.model_dump())

    def _failed(self, cell: Cell, error: Exception) -> Outcome:
        """The outcome of a cell whose run raised this."""
        match error:
            case UnsupportedError():
                return Outcome(verdict="unsupported", reason=str(error))
            case InfeasibleError():
                return Outcome(verdict="infeasible", reason=str(error))
            case UserError():  # a file of the user, removed since the sweep began
                return Outcome(verdict="error", reason=str(error), command=self._command(cell))
            case WrongAnswerError():
                return Outcome(verdict="failed_accuracy", reason=str(error))
            case StepError():
                command = error.command or self._command(cell)
                return Outcome(verdict="error", reason=str(error), log=error.log, command=command)
            case _:
                reason = f"an error of servegrid itself: {type(error).__name__}: {error}"
                return Outcome(
                    verdict="error",
                    reason=refusal(error) or reason,
                    log=str(self._keep_traceback(cell, error)),
                    command=self._command(cell),
                )

    def _keep_traceback(self, cell: Cell, error: Exception) -> Path:
        path = CampaignLayout(folder=self.writer.folder).profile(cell.profile).error_log(cell.name)
        with contextlib.suppress(OSError):  # the error may be a full disk
            write_atomic(path, "".join(traceback.format_exception(error)))
        return path

    def _write(self, cell: Cell, result: CellResult, columns: Row) -> None:
        head = self._head(cell)
        rows: list[tuple[Kind, Row]] = []
        for entry in result.measured:
            for point in entry.points:
                row = head | _point_columns(entry, point, result.baseline)
                limit = roofline_columns(result.roofline, cell.product.precision, entry.serving, row)
                rows.append(("measurement", row | limit))
        self.writer.append_all(
            [*rows, ("cell", head | cell_columns(cell) | _result_columns(result) | columns)]
        )

    def _head(self, cell: Cell) -> Row:
        head = common(self.campaign, cell, self.host, self.versions)
        on_card = cell.dynamic.device_kind == "gpu" and self.options.server != "remote"
        return head | {
            "card_uuid": card_uuid() if on_card else None,
            "flow_run": self.run,
            "worker": self.worker,
            "worker_pid": os.getpid(),
        }

    def _command(self, cell: Cell) -> str:
        """The command that runs this one cell again on this host, with the run's options and generator."""
        product = cell.product
        one: dict[str, Any] = {
            "variant": product.variant,
            "formats": (product.format,),
            "precisions": (product.precision,),
            "accelerators": (product.accelerator,),
            "instances": (cell.dynamic.instances,),
            "generator": cell.online.generator,
        }
        options = self.options.only(product.model, cell.profile).model_copy(update=one)
        return shlex.join(["servegrid", "sweep", *options.words])


def _times(stages: dict[str, float], wall_s: float) -> Row:
    """Seconds of each stage, of the server's start and stop, and of everything else."""
    server_s = sum(stages.pop(name, 0.0) for name in ("server_start", "server_stop"))
    return {
        "stage_s": json.dumps({name: round(seconds, 3) for name, seconds in stages.items()}),
        "wall_s": wall_s,
        "server_s": server_s,
        "orchestration_s": wall_s - server_s - sum(stages.values()),
        "proof_share": sum(stages.get(name, 0.0) for name in PROOF) / wall_s,
    }


def _point_columns(entry: MeasuredPlan, point: MeasuredPoint, baseline: dict[int, float]) -> Row:
    measurement, plan = point.measurement, entry.plan
    return {
        **serving_columns(entry.serving),
        **entry.endpoint.model_dump(include={"server", "server_version", "load_s", "first_request_ms"}),
        **plan_columns(plan),
        **point.model_dump(exclude={"measurement", "trust", "mark"}),
        **point.mark.model_dump(),
        **point.trust.model_dump(exclude={"card", "host"}),
        **point.trust.host.model_dump(),
        **(point.trust.card.model_dump() if point.trust.card else {}),
        **measurement.model_dump(exclude={"windows", "wrong_answers"}),
        "framework_avg_ms": baseline.get(point.batch) if plan.scenario == "offline" else None,
        "windows_throughput": [w.throughput for w in measurement.windows],
        "windows_avg_ms": [w.avg_ms for w in measurement.windows],
        "stable": measurement.stable,
    }


def _result_columns(result: CellResult) -> Row:
    row: Row = {
        "server_peak_bytes": result.server_peak_bytes,
        "largest_batch": result.largest_batch,
    }
    if result.artifact:
        row["artifact_bytes"] = result.artifact.size
        row["artifact_digest"] = result.artifact.digest
    if result.samples:
        row["samples_digest"] = result.samples.digest
    if result.correctness:
        row |= _correctness_columns(result.correctness)
    if result.endpoint:
        row |= result.endpoint.model_dump(include={"server", "server_version", "backend"})
    return row


def _correctness_columns(found: Correctness) -> Row:
    row: Row = {
        "largest_difference": max(t.largest_difference for t in found.tensors),
        "least_cosine": min(
            (t.least_cosine for t in found.tensors if t.least_cosine is not None), default=None
        ),
        "not_finite": max(t.not_finite for t in found.tensors),
        "invariance": found.invariance.largest_difference,
        "load_clients": found.clients,
        "load_batches": json.dumps(found.batches),
    }
    if found.scores:
        row |= {
            "metric": found.scores.metric,
            "metric_reference": found.scores.reference,
            "metrics": to_json(found.scores.all),
            "framework_metric": found.scores.framework,
            "converted_metric": found.scores.converted,
            "served_metric": found.scores.served,
            "shuffled_metric": found.scores.shuffled,
            "metric_drop": found.scores.drop,
        }
    return row
