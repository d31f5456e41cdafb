"""Chooses the points of a load plan, each from the measured ones before. Pure: the caller measures."""

from __future__ import annotations

from collections.abc import Generator, Mapping

from servegrid.domain.slo import Slo
from servegrid.domain.values import LoadPlan, Value
from servegrid.loadgen.base import Measurement, Point, keeps_up
from servegrid.loadgen.search.adaptive import Measured, knee, next_concurrency
from servegrid.loadgen.search.rate_search import highest_held, next_rate

FIRST_RATE = 0.8
"""The first rate of a search, as a share of the most requests/s that a closed loop got."""


class Chosen(Value):
    """The next point, and why it is the next; "" where the plan lists it."""

    point: Point
    why: str = ""


class Mark(Value):
    """The role of a point in its plan.

    knee: whether it is the knee; slo_holds: whether it meets the objective, null without one; slo_best:
    whether it is the highest concurrency of a stable point that does, or the highest rate that does, stable
    or not: near a server's capacity the latency under Poisson arrivals varies between windows.
    """

    knee: bool = False
    slo_holds: bool | None = None
    slo_best: bool = False


Steps = Generator[Chosen, Measurement, None]
"""Yields the next point, and is sent its measurement."""
Curve = dict[int, Measurement]


def steps(plan: LoadPlan) -> Steps:
    """Every point of a plan, batch by batch: its concurrencies, its rates, the search for its objective."""
    for batch in plan.batch_sizes:
        curve = yield from _concurrencies(plan, batch)
        tried: dict[float, bool] = {}
        for rate in plan.request_rates:
            found = yield Chosen(point=point_of(plan, batch, rate=rate))
            tried[rate] = plan.slo is not None and holds(plan.slo, found)
        if plan.slo is not None:
            yield from _search(plan, batch, curve, tried)


def _concurrencies(plan: LoadPlan, batch: int) -> Generator[Chosen, Measurement, Curve]:
    curve: Curve = {}
    if plan.fixed_points:
        for concurrency in plan.concurrency:
            curve[concurrency] = yield Chosen(point=point_of(plan, batch, concurrency=concurrency))
        return curve
    while following := next_concurrency(measured(curve), max(plan.concurrency)):
        point = point_of(plan, batch, concurrency=following.concurrency)
        curve[following.concurrency] = yield Chosen(point=point, why=following.why)
    return curve


def _search(plan: LoadPlan, batch: int, curve: Curve, tried: dict[float, bool]) -> Steps:
    """The highest rate that holds the plan's objective."""
    assert plan.slo is not None
    first = _rounded(FIRST_RATE * max(m.throughput for m in curve.values()) / batch)
    while (rate := next_rate(tried, first)) is not None:
        rate = _rounded(rate)
        held = highest_held(tried)
        why = f"{plan.slo}: {f'{held:g} requests/s hold' if held else 'none holds yet'}"
        tried[rate] = holds(plan.slo, (yield Chosen(point=point_of(plan, batch, rate=rate), why=why)))


def holds(slo: Slo, found: Measurement) -> bool:
    """Whether a point is within the objective and keeps up with its rate, else its latency only grows."""
    return float(getattr(found, slo.column)) <= slo.limit_ms and keeps_up(found.windows)


def measured(curve: Mapping[int, Measurement]) -> dict[int, Measured]:
    """The throughput and latency of each concurrency, which decide the next one."""
    return {c: Measured(throughput=m.throughput, avg_ms=m.avg_ms) for c, m in curve.items()}


def marks(points: Mapping[Point, Measurement], slo: Slo | None) -> dict[Point, Mark]:
    """The mark of every point of a plan."""
    found = {}
    for batch in {point.batch for point in points}:
        curve = {p.concurrency: p for p in points if p.batch == batch and p.concurrency}
        rates = {p.request_rate: p for p in points if p.batch == batch and p.request_rate}
        best = knee(measured({c: points[p] for c, p in curve.items()})) if len(curve) > 1 else None
        for group in (curve, rates):
            held = {load: slo is not None and holds(slo, points[p]) for load, p in group.items()}
            counts = (load for load, p in group.items() if p.request_rate or points[p].stable)
            highest = highest_held({load: held[load] for load in counts})
            for load, point in group.items():
                found[point] = Mark(
                    knee=point.concurrency is not None and load == best,
                    slo_holds=held[load] if slo else None,
                    slo_best=load == highest,
                )
    return found


def point_of(
    plan: LoadPlan, batch: int, *, concurrency: int | None = None, rate: float | None = None
) -> Point:
    """The point of a plan at a concurrency or at a request rate."""
    return Point(
        batch=batch,
        concurrency=concurrency,
        request_rate=rate,
        distribution=plan.distribution if rate else None,
        request_count=plan.request_count,
        window_s=plan.window_s,
        shared_memory=plan.shared_memory,
        input_data=plan.input_data,
        protocol=plan.protocol,
        warm_up=plan.warm_up,
    )


def _rounded(rate: float) -> float:
    """Rounded to four digits."""
    return float(f"{rate:.4g}")
