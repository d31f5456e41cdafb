"""Which concurrency comes next, on servers whose answer to each load is a formula."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from servegrid.loadgen.search.adaptive import Measured, knee, next_concurrency

SERVICE_MS = 20.0
Server = Callable[[int], Measured]


def instances(count: int) -> Server:
    """`count` equal instances without batching: the knee is at `count`, throughput is level beyond."""

    def answer(concurrency: int) -> Measured:
        throughput = min(concurrency, count) * 1e3 / SERVICE_MS
        return Measured(throughput=throughput, avg_ms=concurrency / throughput * 1e3)

    return answer


def batching(base_ms: float, each_ms: float) -> Server:
    """One instance that takes all that waits as one batch: power is greatest where both terms are equal."""

    def answer(concurrency: int) -> Measured:
        latency = base_ms + each_ms * concurrency
        return Measured(throughput=concurrency / latency * 1e3, avg_ms=latency)

    return answer


def explore(server: Server, most: int) -> tuple[dict[int, Measured], list[str]]:
    points: dict[int, Measured] = {}
    reasons = []
    while following := next_concurrency(points, most):
        assert following.concurrency not in points, "a point was measured twice"
        points[following.concurrency] = server(following.concurrency)
        reasons.append(following.why)
    return points, reasons


@pytest.mark.parametrize("count", [1, 2, 3, 4, 5, 6, 8, 11, 16, 20, 32])
def test_knee_and_best_throughput_of_known_capacity_in_a_third_of_32_points(count: int) -> None:
    server = instances(count)
    points, _ = explore(server, 32)
    fixed = {c: server(c) for c in range(1, 33)}
    assert knee(fixed) == count
    assert abs(knee(points) - count) <= max(1, count // 4)
    best = max(p.throughput for p in points.values())
    assert best >= 0.97 * max(p.throughput for p in fixed.values())
    assert len(points) <= 32 // 3


@pytest.mark.parametrize("knee_at", [2, 4, 7, 12, 20])
def test_knee_of_a_batching_server(knee_at: int) -> None:
    server = batching(base_ms=10.0, each_ms=10.0 / knee_at)
    points, _ = explore(server, 64)
    assert knee({c: server(c) for c in range(1, 65)}) == knee_at
    assert abs(knee(points) - knee_at) <= max(1, knee_at // 4)
    assert len(points) <= 64 // 3


@pytest.mark.parametrize("most", [1, 2, 3, 16, 24])
def test_bracket_ends_at_the_most_that_is_allowed(most: int) -> None:
    points, _ = explore(instances(100), most)
    assert max(points) == most == knee(points)


def test_noise_of_a_few_percent_moves_the_knee_by_no_more_than_a_step() -> None:
    far = 0
    for seed in range(50):
        noise = np.random.default_rng(seed)

        def noisy(concurrency: int, noise: np.random.Generator = noise) -> Measured:
            exact, factor = instances(8)(concurrency), float(noise.uniform(0.98, 1.02))
            return Measured(throughput=exact.throughput * factor, avg_ms=exact.avg_ms / factor)

        points, _ = explore(noisy, 32)
        assert len(points) <= 12
        far += abs(knee(points) - 8) > 2
    assert far == 0


def test_every_step_says_why() -> None:
    _, reasons = explore(instances(4), 32)
    assert reasons[0] == "start"
    assert reasons[3] == "doubling: throughput grew by 300.0% over the last ones"
    assert reasons[-1].startswith("refine: most power at 4, its neighbours are ")
