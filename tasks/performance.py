"""Stage `performance`: the points of a load plan, measured one after the other, alone on the device.

The offline plan sends one request at a time to the static serving, in growing batches; the online plan sends
one client batch to the dynamic serving, at growing concurrency, at request rates, and towards an objective.
"""

from __future__ import annotations

import logging

from prefect import task
from prefect.cache_policies import NO_CACHE

from servegrid.checks.deployment import Deployment, prove
from servegrid.domain.errors import StepError, WrongAnswerError
from servegrid.domain.values import ArtifactRef, Endpoint, LoadPlan, Serving
from servegrid.host import contention
from servegrid.host.device_locks import device_lock
from servegrid.host.stage_timer import now, work
from servegrid.loadgen.base import Measurement, Point, Target
from servegrid.loadgen.measured import MeasuredPoint, PartlyMeasuredError, keep, measure_point
from servegrid.loadgen.reference import Reference
from servegrid.loadgen.search.points import Chosen, Steps, marks, steps
from servegrid.loadgen.trust import CONTENTION, TrustCard
from servegrid.loadgen.warm_up import warm_up
from servegrid.store.build import Workplace
from tasks.progress import progress

log = logging.getLogger("servegrid")

AGAIN = 2
"""How often a point is measured again that was measured under contention."""


@task(task_run_name="performance {plan.scenario} {at.cell}", cache_policy=NO_CACHE)
def performance(
    plan: LoadPlan,
    serving: Serving,
    endpoint: Endpoint,
    samples: ArtifactRef,
    reference: Reference,
    at: Workplace,
) -> tuple[MeasuredPoint, ...]:
    """Measure every point of the plan, in order. Answers are checked before the first point, after each, and
    after the last.

    Raises:
        PartlyMeasuredError: the generator or the server failed, or an answer was wrong.
    """
    target = Target(
        endpoint=endpoint,
        samples=at.site.store.path(samples),
        logs=at.logs,
        name=f"{at.cell}.{plan.scenario}",
        reference=reference,
    )
    deployment = Deployment(serving=serving, plan=plan)

    def check(sizes: tuple[int, ...], when: str) -> None:
        with work("proof"):
            prove(deployment, sizes, target, at.timeout_s, when)

    found: dict[Point, MeasuredPoint] = {}
    with (
        progress(len(plan.points), f"{plan.scenario} points of {at.cell}") as advance,
        device_lock(at.profile, exclusive=True),
        work(plan.scenario),
    ):
        try:
            check(deployment.sizes, "before it was measured")
            if plan.warm_up:
                log.info("%s  %s  warming up", at.cell, plan.scenario)
                warm_up(plan, target, at.timeout_s)
            following = steps(plan)
            chosen = next(following, None)
            while chosen:
                measured = _measure(plan, chosen, target, at)
                if wrong := measured.measurement.wrong_answers:
                    where = f"batch of {chosen.point.batch}, {_load(chosen.point)}"
                    raise WrongAnswerError(f"{deployment.name}: {where}: {wrong[0]}")
                check((chosen.point.batch,), f"after {_load(chosen.point)} at {now()}")
                found[chosen.point] = measured
                keep(measured)
                advance()
                chosen = _next(following, measured.measurement)
            check(deployment.used, f"after all load at {now()}")
        except StepError as error:
            raise PartlyMeasuredError(error) from error
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
    for _ in range(AGAIN):
        if CONTENTION not in trust.failed_checks or not contention.at_rest(target.endpoint.server_pid):
            break
        _log(point, plan, measurement, trust, at)
        log.info("%s  %s  measured again: other programs ran meanwhile", at.cell, plan.scenario)
        began = now()
        measurement, trust = measure_point(generator, point, target, at.site)
    _log(point, plan, measurement, trust, at)
    return MeasuredPoint(
        **point.model_dump(include={"batch", "concurrency", "request_rate", "distribution"}),
        measurement=measurement,
        started_at=began,
        ended_at=now(),
        trust=trust,
    )


def _log(point: Point, plan: LoadPlan, measurement: Measurement, trust: TrustCard, at: Workplace) -> None:
    log.info(
        "%s  %s  batch %d  %s: %.1f inferences/s, p99 %.2f ms%s",
        at.cell,
        plan.scenario,
        point.batch,
        _load(point),
        measurement.throughput,
        measurement.p99_ms,
        f"  (failed checks: {', '.join(trust.failed_checks)})" if trust.failed_checks else "",
    )


def _load(point: Point) -> str:
    if point.concurrency:
        return f"concurrency {point.concurrency}"
    return f"{point.request_rate:g} requests/s ({point.distribution})"
