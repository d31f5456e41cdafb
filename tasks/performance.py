"""Stages `offline` and `online`: a load plan's points, measured one after the other, alone on the device."""

from __future__ import annotations

import logging

from prefect import task
from prefect.cache_policies import NO_CACHE

from tasks.core.build import Workplace
from tasks.core.clock import now, work
from tasks.core.environment import device_lock
from tasks.core.errors import StepError
from tasks.core.values import ArtifactRef, Endpoint, LoadPlan, Value
from tasks.loadgen import GENERATORS
from tasks.loadgen.base import Measurement, Point, Target
from tasks.progress import progress

log = logging.getLogger("servegrid")


class PartlyMeasuredError(StepError):
    """A plan broke off; `points` were measured before."""

    def __init__(self, cause: StepError, points: tuple[MeasuredPoint, ...]) -> None:
        super().__init__(str(cause), log=cause.log, command=cause.command)
        self.points = points


class MeasuredPoint(Value):
    """A point, what was measured there, and when (ISO 8601, UTC)."""

    batch: int
    concurrency: int
    measurement: Measurement
    started_at: str | None = None
    ended_at: str | None = None


def measure(
    plan: LoadPlan, endpoint: Endpoint, samples: ArtifactRef, at: Workplace
) -> tuple[MeasuredPoint, ...]:
    """Every point of the plan, in order.

    Raises:
        PartlyMeasuredError: the generator or the server failed.
    """
    generator = GENERATORS[plan.generator]
    target = Target(
        endpoint=endpoint,
        samples=at.site.store.path(samples),
        logs=at.logs,
        name=f"{at.cell}.{plan.scenario}",
    )
    found: list[MeasuredPoint] = []
    with (
        progress(len(plan.points), f"{plan.scenario} points of {at.cell}") as advance,
        device_lock(at.profile, exclusive=True),
        work(plan.scenario),
    ):
        for batch, concurrency in plan.points:
            point = Point(
                batch=batch,
                concurrency=concurrency,
                request_count=plan.request_count,
                shared_memory=plan.shared_memory,
                warm_up=plan.warm_up,
            )
            began = now()
            try:
                measurement = generator.measure(point, target, at.site)
            except StepError as error:
                raise PartlyMeasuredError(error, tuple(found)) from error
            log.info(
                "%s  %s  batch %d  concurrency %d: %.1f inferences/s, p99 %.2f ms%s",
                at.cell,
                plan.scenario,
                batch,
                concurrency,
                measurement.throughput,
                measurement.p99_ms,
                "" if measurement.stable else "  (unstable)",
            )
            found.append(
                MeasuredPoint(
                    batch=batch,
                    concurrency=concurrency,
                    measurement=measurement,
                    started_at=began,
                    ended_at=now(),
                )
            )
            advance()
    return tuple(found)


@task(task_run_name="offline {at.cell}", cache_policy=NO_CACHE)
def offline(
    plan: LoadPlan, endpoint: Endpoint, samples: ArtifactRef, at: Workplace
) -> tuple[MeasuredPoint, ...]:
    """Static batching, one request at a time, growing batches."""
    return measure(plan, endpoint, samples, at)


@task(task_run_name="online {at.cell}", cache_policy=NO_CACHE)
def online(
    plan: LoadPlan, endpoint: Endpoint, samples: ArtifactRef, at: Workplace
) -> tuple[MeasuredPoint, ...]:
    """Dynamic batching, one client batch, growing concurrency."""
    return measure(plan, endpoint, samples, at)
