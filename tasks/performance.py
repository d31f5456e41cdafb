"""Stages `offline` and `online`: a load plan's points, measured one after the other, alone on the device."""

from __future__ import annotations

import logging

from prefect import task
from prefect.cache_policies import NO_CACHE

from tasks.core import card
from tasks.core.build import Workplace
from tasks.core.clock import now, work
from tasks.core.environment import device_lock
from tasks.core.errors import StepError
from tasks.core.site import Site
from tasks.core.values import ArtifactRef, Endpoint, Generator, LoadPlan, Value
from tasks.loadgen import GENERATORS
from tasks.loadgen.base import Measurement, Point, Target
from tasks.loadgen.points import Chosen, Mark, Steps, marks, steps
from tasks.loadgen.trust import TrustCard, examine
from tasks.loadgen.warm_up import warm_up
from tasks.progress import progress

log = logging.getLogger("servegrid")


class PartlyMeasuredError(StepError):
    """A plan broke off; `points` were measured before. The generator's command, without the server that it
    asked, would repeat nothing."""

    def __init__(self, cause: StepError, points: tuple[MeasuredPoint, ...]) -> None:
        super().__init__(str(cause), log=cause.log)
        self.points = points


class MeasuredPoint(Value):
    """A point, what was measured there and when (ISO 8601, UTC), how far that can be trusted, and what the
    point is in its plan."""

    batch: int
    concurrency: int | None
    request_rate: float | None = None
    distribution: str | None = None
    measurement: Measurement
    started_at: str
    ended_at: str
    trust: TrustCard
    mark: Mark = Mark()


def measure(
    plan: LoadPlan, endpoint: Endpoint, samples: ArtifactRef, at: Workplace
) -> tuple[MeasuredPoint, ...]:
    """Every point of the plan, in order.

    Raises:
        PartlyMeasuredError: the generator or the server failed.
    """
    target = Target(
        endpoint=endpoint,
        samples=at.site.store.path(samples),
        logs=at.logs,
        name=f"{at.cell}.{plan.scenario}",
    )
    found: dict[Point, MeasuredPoint] = {}
    with (
        progress(len(plan.points), f"{plan.scenario} points of {at.cell}") as advance,
        device_lock(at.profile, exclusive=True),
        work(plan.scenario),
    ):
        try:
            if plan.warm_up:
                log.info("%s  %s  warming up", at.cell, plan.scenario)
                warm_up(plan, target, at.timeout_s)
            following = steps(plan)
            chosen = next(following, None)
            while chosen:
                one = found[chosen.point] = _measure(plan, chosen, target, at)
                advance()
                chosen = _next(following, one.measurement)
        except StepError as error:
            raise PartlyMeasuredError(error, tuple(found.values())) from error
    of_plan = marks({point: entry.measurement for point, entry in found.items()}, plan.slo)
    for point in (point for point, mark in of_plan.items() if mark.slo_best):
        log.info("%s  %s  %s is the highest that holds %s", at.cell, plan.scenario, _load(point), plan.slo)
    return tuple(entry.model_copy(update={"mark": of_plan[point]}) for point, entry in found.items())


def _next(following: Steps, measurement: Measurement) -> Chosen | None:
    try:
        return following.send(measurement)
    except StopIteration:
        return None


def _measure(plan: LoadPlan, chosen: Chosen, target: Target, at: Workplace) -> MeasuredPoint:
    point = chosen.point
    if chosen.why:
        log.info("%s  %s  next is %s: %s", at.cell, plan.scenario, _load(point), chosen.why)
    # perf_analyzer counts latency from the time at which it sends, not from that at which it should have.
    generator = plan.generator if point.concurrency else "client"
    began = now()
    measurement, trust = measure_point(generator, point, target, at.site)
    log.info(
        "%s  %s  batch %d  %s: %.1f inferences/s, p99 %.2f ms%s",
        at.cell,
        plan.scenario,
        point.batch,
        _load(point),
        measurement.throughput,
        measurement.p99_ms,
        f"  (fails {', '.join(trust.failed_checks)})" if trust.failed_checks else "",
    )
    return MeasuredPoint(
        **point.model_dump(include={"batch", "concurrency", "request_rate", "distribution"}),
        measurement=measurement,
        started_at=began,
        ended_at=now(),
        trust=trust,
    )


def measure_point(
    generator: Generator, point: Point, target: Target, site: Site
) -> tuple[Measurement, TrustCard]:
    """One point by one load generator, and how far it can be trusted; the card is watched meanwhile.

    Raises:
        StepError: the generator or the server failed.
    """
    with card.watching(target.endpoint.server_pid) as looks:
        measurement = GENERATORS[generator].measure(point, target, site)
    return measurement, examine(point, measurement, card.facts(looks))


def _load(point: Point) -> str:
    if point.concurrency:
        return f"concurrency {point.concurrency}"
    return f"{point.request_rate:g} requests/s ({point.distribution})"


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
    """Dynamic batching, one client batch: growing concurrency, request rates, an objective."""
    return measure(plan, endpoint, samples, at)
