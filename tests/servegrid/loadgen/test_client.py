"""How the client watches itself."""

from __future__ import annotations

import asyncio
import os
import statistics
import time

import psutil
import pytest

from servegrid.loadgen.base import Point, Window, counted, keeps_up, stable
from servegrid.loadgen.client.process import Run, WindowBoundary, in_flight
from servegrid.loadgen.client.schedule import due_times
from servegrid.loadgen.client.worker import pacing
from servegrid.loadgen.lag import idle_s, starves_the_server, too_late


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


def test_lag_of_a_busy_event_loop_is_measured() -> None:
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
def test_client_limits_the_measurement_beyond_a_lag_and_a_share_of_the_latency(
    lag_ms: float, latency_ms: float, expected: bool
) -> None:
    assert too_late(lag_ms, latency_ms) is expected


def test_idle_time_of_the_host_is_that_of_all_cores() -> None:
    before = psutil.cpu_times().idle
    assert before - 0.5 <= idle_s() <= psutil.cpu_times().idle + 0.5


def test_client_limits_the_measurement_when_it_uses_cores_and_none_is_idle() -> None:
    host = os.cpu_count() or 1
    assert starves_the_server(idle_cores=0.01 * host, own_cores=0.2 * host)
    assert not starves_the_server(idle_cores=0.01 * host, own_cores=0.02 * host)
    assert not starves_the_server(idle_cores=0.3 * host, own_cores=0.2 * host)


class Formula(Run):
    """A run whose processes are a formula: so much throughput from so many of them, and the fewest that are
    not late."""

    class Processes:
        def __init__(self, most: int) -> None:
            self.most = most

        def __len__(self) -> int:
            return self.most

        def stop(self) -> None: ...

    def __init__(self, most: int, enough: int, throughput: dict[int, float]) -> None:
        self.point = Point(batch=1, concurrency=16, request_count=50, shared_memory="none", warm_up=False)
        self.pool = Formula.Processes(most)  # type: ignore[assignment]
        self.enough, self.throughput = enough, throughput
        self.started: list[int] = []

    def _start(self, processes: int) -> None:
        self.started.append(processes)
        self.windows = [Window(throughput=self.throughput[processes], avg_ms=2.0)]
        self.edges = [WindowBoundary(0.0, {}, 0.0, 0.0), WindowBoundary(1.0, {}, 0.0, 0.0)]

    def _lag_ms(self, first: WindowBoundary, last: WindowBoundary) -> float:
        return 0.1 if self.started[-1] >= self.enough else 1.0


@pytest.mark.parametrize(
    ("most", "enough", "throughput", "started"),
    [
        (8, 1, {1: 100.0}, [1]),  # in time at once
        (8, 4, {1: 100.0, 2: 150.0, 4: 180.0}, [1, 2, 4]),
        (6, 9, {1: 100.0, 2: 150.0, 4: 180.0}, [1, 2, 4]),  # the next would be more than there are
        (1, 9, {1: 100.0}, [1]),
        (8, 9, {1: 100.0, 2: 102.0}, [1, 2, 1]),  # more of them bring nothing
        (8, 9, {1: 100.0, 2: 150.0, 4: 120.0}, [1, 2, 4, 2]),
    ],
)
def test_in_a_closed_loop_processes_double_while_they_are_late_and_bring_more(
    most: int, enough: int, throughput: dict[int, float], started: list[int]
) -> None:
    run = Formula(most, enough, throughput)
    assert run._enough_processes() == started[-1]
    assert run.started == started
    assert run.windows[-1].throughput == throughput[started[-1]]


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


def test_at_a_rate_windows_are_judged_by_the_due_requests() -> None:
    assert stable([Window(throughput=t, avg_ms=5.0, offered=t) for t in (80, 100, 120)])  # as arrivals vary
    assert not stable(rate_windows(80, 80, 80))
    assert not keeps_up(rate_windows(100, 80, 80))
    assert keeps_up(rate_windows(10, 100, 95, 95))  # only the last three
    assert counted(rate_windows(1, 100, 100, 100)) == 4  # and yet a stall is not forgotten
    assert counted([Window(throughput=1.0, avg_ms=1.0)] * 5) == 3
