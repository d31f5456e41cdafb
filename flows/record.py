"""What a cell's run leaves behind: one row with its verdict, and a row for each measured point."""

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
from dataclasses import dataclass, field
from typing import Any

from servegrid.campaign.options_file import profile_folder
from servegrid.campaign.results import (
    Kind,
    Row,
    Verdict,
    Writer,
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
from servegrid.domain.roofline import Roofline
from servegrid.domain.values import ArtifactRef, Cell, Endpoint, LoadPlan, Serving, Value
from servegrid.host.environment import Host
from servegrid.host.files import write_atomic
from servegrid.host.memory import peak_bytes
from servegrid.host.stage_timer import collecting, now
from servegrid.loadgen.measured import MeasuredPoint, PartlyMeasuredError
from servegrid.plan.options import SweepOptions
from tasks.baseline import Baseline

log = logging.getLogger("servegrid")

PROOF = ("correctness", "proof")
"""Stages that ask for checked answers."""


class Outcome(Value):
    """A cell's verdict, why, and for an error its log and the command that repeats the step."""

    verdict: Verdict
    reason: str = ""
    log: str | None = None
    command: str | None = None

    @property
    def line(self) -> str:
        """Verdict and reason in one line."""
        return f"{self.verdict}: {self.reason.splitlines()[0]}" if self.reason else self.verdict


@dataclass
class Record:
    """Filled stage by stage while a cell runs; what was not reached stays empty."""

    artifact: ArtifactRef | None = None
    baseline: Baseline = field(default_factory=dict)
    roofline: Roofline | None = None
    correctness: Correctness | None = None
    measured: list[tuple[LoadPlan, Serving, Endpoint, tuple[MeasuredPoint, ...]]] = field(
        default_factory=list
    )
    endpoint: Endpoint | None = None
    server_peak_bytes: int | None = None
    largest_batch: int | None = None
    outcome: Outcome | None = None

    @contextmanager
    def measuring(
        self, plan: LoadPlan, serving: Serving, endpoint: Endpoint
    ) -> Iterator[list[MeasuredPoint]]:
        """A list for the plan's points; those that were measured before an error are kept too."""
        points: list[MeasuredPoint] = []
        try:
            yield points
        except PartlyMeasuredError as error:
            points += error.points
            if isinstance(error.cause, WrongAnswerError):
                raise error.cause from error
            raise
        finally:
            self.measured.append((plan, serving, endpoint, tuple(points)))

    @contextmanager
    def memory_of(self, server_pid: int | None) -> Iterator[None]:
        """Take down the server's peak memory when the block ends, however it ends; None: another host's."""
        try:
            yield
        finally:
            if server_pid is not None:
                self.server_peak_bytes = peak_bytes(server_pid)
                if self.server_peak_bytes is not None:
                    log.info("server: peak memory %.2f GB", self.server_peak_bytes / 1e9)

    def judge(self) -> Outcome:
        """The outcome of a cell whose stages all ran, and why."""
        assert self.correctness is not None
        if self.correctness.failures:
            return Outcome(verdict="failed_accuracy", reason="; ".join(self.correctness.failures))
        for plan, _, _, points in self.measured:
            if not any(point.measurement.stable for point in points if point.concurrency):
                reason = f"no {plan.scenario} point of a concurrency had three windows within 10 %"
                return Outcome(verdict="unstable", reason=reason)
        if self.correctness.scores is None:
            return Outcome(verdict="measured", reason="no metric to gate on")
        return Outcome(verdict="passed", reason=self.correctness.unproven)


@dataclass(frozen=True)
class Recorder:
    """Writes the rows of one `qualify` run."""

    writer: Writer
    campaign: str
    host: Host
    versions: dict[str, str]
    options: SweepOptions
    """The options of the run, with absolute paths."""
    run: str
    """The id of the flow run."""

    def without_run(self, cell: Cell, outcome: Outcome) -> None:
        """The row of a cell that does not run: a rule forbids it, or the campaign ends before."""
        self.writer.append("cell", self._head(cell) | cell_columns(cell) | outcome.model_dump())
        log.info("%s: %s", cell.name, outcome.line)

    @contextmanager
    def cell(self, cell: Cell) -> Iterator[Record]:
        """Whatever happens in the block ends in exactly one row; only an interrupt gets through."""
        record = Record()
        began, start = now(), time.perf_counter()
        with collecting() as stages:
            try:
                yield record
                record.outcome = record.judge()
            except UnsupportedError as error:
                record.outcome = Outcome(verdict="unsupported", reason=str(error))
            except InfeasibleError as error:
                record.largest_batch = error.largest_batch
                record.outcome = Outcome(verdict="infeasible", reason=str(error))
            except UserError as error:  # a file that the user gave, gone since the sweep began
                record.outcome = Outcome(verdict="error", reason=str(error), command=self._again(cell))
            except WrongAnswerError as error:
                record.outcome = Outcome(verdict="failed_accuracy", reason=str(error))
            except StepError as error:
                command = error.command or self._again(cell)
                record.outcome = Outcome(verdict="error", reason=str(error), log=error.log, command=command)
            except Exception as error:
                path = profile_folder(self.writer.folder, cell.profile) / "logs" / f"{cell.name}.error.log"
                # What the error is about, a full disk perhaps, may forbid that, too.
                with contextlib.suppress(OSError):
                    write_atomic(path, traceback.format_exc())
                record.outcome = Outcome(
                    verdict="error",
                    reason=refusal(error) or f"an error of servegrid itself: {type(error).__name__}: {error}",
                    log=str(path),
                    command=self._again(cell),
                )
        wall = time.perf_counter() - start
        self._write(cell, record, record.outcome, stages, wall, {"started_at": began, "ended_at": now()})

    def _write(
        self, cell: Cell, record: Record, outcome: Outcome, stages: dict[str, float], wall: float, span: Row
    ) -> None:
        head = self._head(cell)
        rows: list[tuple[Kind, Row]] = [
            ("measurement", row | roofline_columns(record.roofline, cell.product.precision, serving, row))
            for plan, serving, endpoint, points in record.measured
            for row in (
                head | _measurement(plan, serving, endpoint, point, record.baseline) for point in points
            )
        ]
        server_s = sum(stages.pop(name, 0.0) for name in ("server_start", "server_stop"))
        times = {
            "stage_s": json.dumps({name: round(seconds, 3) for name, seconds in stages.items()}),
            "wall_s": wall,
            "server_s": server_s,
            "orchestration_s": wall - server_s - sum(stages.values()),
            "proof_share": sum(stages.get(name, 0.0) for name in PROOF) / wall,
        }
        size: Row = {
            "server_peak_bytes": record.server_peak_bytes,
            "largest_batch": record.largest_batch,
        }
        size |= {"artifact_bytes": record.artifact.size} if record.artifact else {}
        found = _correctness(record.correctness) if record.correctness else {}
        if record.endpoint:
            found |= record.endpoint.model_dump(include={"server", "server_version", "backend"})
        row = head | span | cell_columns(cell) | size | found | times | outcome.model_dump()
        log.info("%s: %s", cell.name, outcome.line)  # also where the row cannot be written
        self.writer.append_all([*rows, ("cell", row)])

    def _head(self, cell: Cell) -> Row:
        head = common(self.campaign, cell.name, cell.product, cell.profile, self.host, self.versions)
        return head | {"flow_run": self.run, "worker_pid": os.getpid()}

    def _again(self, cell: Cell) -> str:
        """The command that runs one cell here, by the options and with the generator that it had."""
        product = cell.product
        one: dict[str, Any] = {
            "variant": product.variant,
            "formats": (product.format,),
            "precisions": (product.precision,),
            "accelerators": (product.accelerator,),
            "instances": cell.dynamic.instances,
            "generator": cell.online.generator,
        }
        options = self.options.only(product.model, cell.profile).model_copy(update=one)
        return shlex.join(["servegrid", "sweep", *options.words])


def _measurement(
    plan: LoadPlan, serving: Serving, endpoint: Endpoint, point: MeasuredPoint, baseline: Baseline
) -> Row:
    measurement = point.measurement
    return {
        **serving_columns(serving),
        **endpoint.model_dump(include={"server", "server_version", "load_s", "first_request_ms"}),
        **plan_columns(plan),
        **point.model_dump(exclude={"measurement", "trust", "mark"}),
        **point.mark.model_dump(),
        **point.trust.model_dump(exclude={"card"}),
        **(point.trust.card.model_dump() if point.trust.card else {}),
        **measurement.model_dump(exclude={"windows", "wrong_answers"}),
        "framework_avg_ms": baseline.get(point.batch) if plan.scenario == "offline" else None,
        "windows_throughput": [w.throughput for w in measurement.windows],
        "windows_avg_ms": [w.avg_ms for w in measurement.windows],
        "stable": measurement.stable,
    }


def _correctness(found: Correctness) -> Row:
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
            "metrics": json.dumps(found.scores.all),
            "framework_metric": found.scores.framework,
            "served_metric": found.scores.served,
            "shuffled_metric": found.scores.shuffled,
            "metric_drop": found.scores.drop,
        }
    return row
