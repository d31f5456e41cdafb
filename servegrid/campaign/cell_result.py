"""What a cell's run found, stage by stage, and the verdict that follows from it."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from servegrid.campaign.results import Verdict
from servegrid.checks.verdict import Correctness
from servegrid.domain.errors import WrongAnswerError
from servegrid.domain.roofline import Roofline
from servegrid.domain.values import ArtifactRef, Endpoint, LoadPlan, Serving, Value
from servegrid.host.memory import peak_bytes
from servegrid.loadgen.measured import MeasuredPoint, PartlyMeasuredError, keeping

log = logging.getLogger("servegrid")


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


class MeasuredPlan(Value):
    """A load plan, the serving and endpoint that it loaded, and its points."""

    plan: LoadPlan
    serving: Serving
    endpoint: Endpoint
    points: tuple[MeasuredPoint, ...]


@dataclass
class CellResult:
    """Filled stage by stage while a cell runs; stages that were not reached leave their fields empty.

    baseline: batch size -> average latency of the framework itself, in ms.
    """

    artifact: ArtifactRef | None = None
    samples: ArtifactRef | None = None
    baseline: dict[int, float] = field(default_factory=dict)
    roofline: Roofline | None = None
    correctness: Correctness | None = None
    measured: list[MeasuredPlan] = field(default_factory=list)
    endpoint: Endpoint | None = None
    server_peak_bytes: int | None = None
    largest_batch: int | None = None
    outcome: Outcome | None = None

    @contextmanager
    def measuring(
        self, plan: LoadPlan, serving: Serving, endpoint: Endpoint
    ) -> Iterator[list[MeasuredPoint]]:
        """A list for the plan's points; points measured before an error or an interrupt are kept, too."""
        points: list[MeasuredPoint] = []
        with keeping() as kept:
            try:
                yield points
            except PartlyMeasuredError as error:
                if isinstance(error.cause, WrongAnswerError):
                    raise error.cause from error
                raise
            finally:
                found = MeasuredPlan(
                    plan=plan, serving=serving, endpoint=endpoint, points=tuple(points or kept)
                )
                self.measured.append(found)

    @contextmanager
    def memory_of(self, server_pid: int | None) -> Iterator[None]:
        """Record the server's peak memory when the block ends; None: the server of another host."""
        try:
            yield
        finally:
            if server_pid is not None:
                self.server_peak_bytes = peak_bytes(server_pid)
                if self.server_peak_bytes is not None:
                    log.info("server: peak memory %.2f GB", self.server_peak_bytes / 1e9)

    def judge(self) -> Outcome:
        """The outcome of a cell whose stages all ran."""
        assert self.correctness is not None
        if self.correctness.failures:
            return Outcome(verdict="failed_accuracy", reason="; ".join(self.correctness.failures))
        for entry in self.measured:
            if not any(point.measurement.stable for point in entry.points if point.concurrency):
                reason = f"no {entry.plan.scenario} point of a concurrency had three windows within 10 %"
                return Outcome(verdict="unstable", reason=reason)
        if self.correctness.scores is None:
            return Outcome(verdict="measured", reason="no metric to gate on")
        if self.correctness.undecided:
            return Outcome(verdict="measured", reason=self.correctness.undecided)
        return Outcome(verdict="passed", reason=self.correctness.unproven)
