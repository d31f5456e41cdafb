"""How the client watches itself."""

from __future__ import annotations

import asyncio
import os
import statistics
import time

import pytest

from tasks.loadgen.base import Point, Window, counted, keeps_up, stable
from tasks.loadgen.client_process import in_flight
from tasks.loadgen.client_worker import pacing
from tasks.loadgen.own_load import starves_the_server, too_late
from tasks.loadgen.schedule import due_times


async def lateness(block_s: float) -> float:
    """How late an event loop is on average, in s, that is blocked again and again."""
    late: list[float] = []
    begin = time.perf_counter()
    times = due_times(200.0, "poisson")
    with pacing(times, begin, lambda due: late.append(time.perf_counter() - due)):
        while time.perf_counter() - begin < 0.6:
            time.sleep(block_s)
            await asyncio.sleep(0.001)
    return statistics.mean(late)


def test_a_busy_event_loop_is_seen_to_be_late() -> None:
    idle, blocked = asyncio.run(lateness(0.0)), asyncio.run(lateness(0.05))
    assert 0.015 < blocked < 0.2  # who comes at a random time waits half of 50 ms
    assert idle < blocked / 2


@pytest.mark.parametrize(
    ("lag_ms", "latency_ms", "expected"),
    [
        (0.4, 0.6, False),  # a fast model: what half a millisecond may not show
        (0.6, 1.0, True),
        (0.9, 20.0, False),
        (1.1, 20.0, True),
        (4.9, 100.0, False),
        (5.1, 100.0, True),
    ],
)
def test_generator_bound_is_where_lateness_shows_in_the_figures(
    lag_ms: float, latency_ms: float, expected: bool
) -> None:
    assert too_late(lag_ms, latency_ms) is expected


def test_a_client_bounds_the_server_where_no_core_is_idle_and_it_takes_some() -> None:
    host = os.cpu_count() or 1
    assert starves_the_server(idle_cores=0.01 * host, own_cores=0.2 * host)
    assert not starves_the_server(idle_cores=0.01 * host, own_cores=0.02 * host)
    assert not starves_the_server(idle_cores=0.3 * host, own_cores=0.2 * host)


@pytest.mark.parametrize(("rate", "places"), [(0.5, 16), (16.5, 17), (200.0, 200), (9000.0, 512)])
def test_at_a_rate_the_requests_of_a_second_may_be_in_flight(rate: float, places: int) -> None:
    point = Point(
        batch=1, request_rate=rate, distribution="poisson", request_count=50, shared_memory="none",
        warm_up=False,
    )  # fmt: skip
    assert in_flight(point) == places
    assert in_flight(point.model_copy(update={"request_rate": None, "concurrency": 3})) == 3


def rate_windows(*throughputs: float, offered: float = 100.0) -> list[Window]:
    return [Window(throughput=t, avg_ms=5.0, offered=offered) for t in throughputs]


def test_at_a_rate_windows_are_judged_by_what_was_due() -> None:
    assert stable([Window(throughput=t, avg_ms=5.0, offered=t) for t in (80, 100, 120)])  # as arrivals vary
    assert not stable(rate_windows(80, 80, 80))
    assert not keeps_up(rate_windows(100, 80, 80))
    assert keeps_up(rate_windows(10, 100, 95, 95))  # only the last three
    assert counted(rate_windows(1, 100, 100, 100)) == 4  # and yet a stall is not forgotten
    assert counted([Window(throughput=1.0, avg_ms=1.0)] * 5) == 3
