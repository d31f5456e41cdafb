"""The points of a plan and the search for an objective, on servers that are formulas."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from servegrid.domain.slo import parse
from servegrid.domain.values import LoadPlan
from servegrid.loadgen.base import Measurement, Point, Window
from servegrid.loadgen.search.points import holds, marks, steps
from servegrid.loadgen.search.rate_search import highest_held, next_rate

CAPACITY = 200.0
"""Requests/s of the server that the formulas describe: two instances of 10 ms."""


def measurement(throughput: float, latency_ms: float, offered: float | None = None) -> Measurement:
    columns = dict.fromkeys(
        (
            *("client_send_ms", "network_server_send_recv_ms", "server_queue_ms", "server_compute_input_ms"),
            *("server_compute_infer_ms", "server_compute_output_ms", "client_recv_ms"),
        ),
        latency_ms / 7,
    )
    statistics = dict.fromkeys(("p50_ms", "p90_ms", "p95_ms", "p99_ms", "avg_ms"), latency_ms)
    window = Window(throughput=throughput, avg_ms=latency_ms, offered=offered)
    return Measurement(
        throughput=throughput, **columns, **statistics, request_count=150, windows=(window,) * 3,
        generator="client", generator_version="0",
    )  # fmt: skip


def server(point: Point) -> Measurement:
    """Closed loop: two instances. At a rate: a latency that grows without bound towards the capacity."""
    if point.concurrency:
        throughput = min(point.concurrency, 2) * CAPACITY / 2
        return measurement(throughput, point.concurrency / throughput * 1e3)
    assert point.request_rate
    if point.request_rate >= CAPACITY:
        return measurement(CAPACITY, 2000.0, offered=point.request_rate)
    latency = 10.0 / (1 - point.request_rate / CAPACITY)
    return measurement(point.request_rate, latency, offered=point.request_rate)


def explore(load: LoadPlan, answer: Callable[[Point], Measurement] = server) -> dict[Point, Measurement]:
    found: dict[Point, Measurement] = {}
    following = steps(load)
    try:
        chosen = next(following)
        while True:
            found[chosen.point] = answer(chosen.point)
            chosen = following.send(found[chosen.point])
    except StopIteration:
        return found


def plan(**given: Any) -> LoadPlan:
    known = {"scenario": "online", "batch_sizes": (1,), "concurrency": (1, 2, 8), "generator": "client"}
    return LoadPlan(**(known | given))


def test_fixed_points_follow_the_plan_in_order() -> None:
    found = list(explore(plan(batch_sizes=(1, 4))))
    assert [(p.batch, p.concurrency) for p in found] == [(b, c) for b in (1, 4) for c in (1, 2, 8)]


def test_adaptive_points_end_at_the_largest_concurrency_of_the_plan() -> None:
    found = explore(plan(fixed_points=False))
    assert {1, 2, 4, 8} <= {p.concurrency for p in found}
    assert max(p.concurrency or 0 for p in found) == 8
    assert {p.concurrency for p, mark in marks(found, None).items() if mark.knee} == {2}


def test_rates_follow_the_concurrencies_with_their_distribution() -> None:
    found = list(explore(plan(request_rates=(50.0, 20.0), distribution="constant")))
    assert [p.request_rate for p in found[3:]] == [50.0, 20.0]
    assert {p.distribution for p in found[3:]} == {"constant"}
    assert {(p.distribution, p.request_rate) for p in found[:3]} == {(None, None)}
    assert all(mark.slo_holds is None for mark in marks(explore(plan()), None).values())


@pytest.mark.parametrize("limit_ms", [15, 20, 50, 500])
def test_highest_rate_within_the_objective_is_found_and_marked(limit_ms: float) -> None:
    slo = f"p99={limit_ms}ms"
    found = explore(plan(slo=slo))
    exact = CAPACITY * (1 - 10.0 / limit_ms)
    of_plan = marks(found, slo)
    (best,) = (p.request_rate for p, mark in of_plan.items() if mark.slo_best and p.request_rate)
    assert best == pytest.approx(exact, rel=0.08)
    assert best <= exact
    assert sum(1 for p in found if p.request_rate) <= 9
    concurrency = [p.concurrency for p, mark in of_plan.items() if mark.slo_best and p.concurrency]
    assert concurrency == [2 if limit_ms < 40 else 8]


def test_a_concurrency_that_is_not_stable_is_not_the_highest_that_holds() -> None:
    def restless(point: Point) -> Measurement:
        found, shaken = server(point), Window(throughput=1.0, avg_ms=1.0)
        steady = point.concurrency in (2, None)
        return found if steady else found.model_copy(update={"windows": (shaken, *found.windows[1:])})

    found = explore(plan(slo="p99=500ms"), restless)
    of_plan = marks(found, "p99=500ms")
    assert all(of_plan[p].slo_holds for p in found if p.concurrency)
    assert [p.concurrency for p, mark in of_plan.items() if mark.slo_best and p.concurrency] == [2]


def test_if_no_rate_holds_none_is_marked_and_the_search_ends() -> None:
    found = explore(plan(slo="p99=5ms"))
    assert not any(mark.slo_best or mark.slo_holds for mark in marks(found, "p99=5ms").values())
    assert sum(1 for p in found if p.request_rate) <= 8


def test_a_rate_that_is_not_kept_up_with_holds_no_objective() -> None:
    assert holds(parse("p99=50ms"), measurement(100.0, 10.0, offered=105.0))
    assert not holds(parse("p99=50ms"), measurement(100.0, 10.0, offered=120.0))
    assert not holds(parse("avg=9ms"), measurement(100.0, 10.0))


def test_a_rate_that_holds_above_one_that_does_not_is_luck() -> None:
    tried = {10.0: True, 20.0: False, 30.0: True}
    assert highest_held(tried) == 10.0
    assert next_rate(tried, 10.0) == 15.0


@pytest.mark.parametrize("rate", [1.0, 5000.0])
def test_a_planned_rate_far_from_the_servers_makes_the_search_no_longer(rate: float) -> None:
    found = explore(plan(slo="p99=50ms", request_rates=(rate,)))
    (best,) = (p.request_rate for p, m in marks(found, "p99=50ms").items() if m.slo_best and p.request_rate)
    assert best == pytest.approx(CAPACITY * 0.8, rel=0.08)
    assert sum(1 for p in found if p.request_rate) <= 9 + 1


@pytest.mark.parametrize(
    ("text", "limit_ms"), [("p99=50ms", 50.0), ("avg=0.2s", 200.0), (" p50=800us ", 0.8), ("p95=1.5ms", 1.5)]
)
def test_objectives_are_read_in_any_unit(text: str, limit_ms: float) -> None:
    assert parse(text).limit_ms == pytest.approx(limit_ms)
    assert parse(str(parse(text))) == parse(text)
