"""The search, on a server whose throughput and latency are formulas: it finds the best, and prunes."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from servegrid.domain.errors import UserError
from servegrid.domain.slo import Slo, parse
from servegrid.domain.values import Serving
from servegrid.loadgen.search.tuning import Axes, Setting, Trial, grid, search, winner

SERVING = Serving(batching="dynamic", max_batch_size=8, preferred_batch_sizes=(4, 8), max_queue_delay_us=1)


def formula(slo: Slo, cores: int = 2) -> tuple[Callable[[Setting, int], Trial], list[tuple[Setting, int]]]:
    """A server: 4 ms a batch and 1 ms a sample, on as many instances as there are cores; batches are
    filled better by a longer delay."""
    measured: list[tuple[Setting, int]] = []

    def measure(setting: Setting, concurrency: int) -> Trial:
        measured.append((setting, concurrency))
        parallel = min(setting.instances, cores)
        filled = min(0.5 + setting.max_queue_delay_us / 2000, 1.0) if setting.preferred_batch_sizes else 0.5
        batch = max(min(concurrency / parallel * filled, 8.0), 1.0)
        rate = min(parallel, concurrency) * batch / (4 + batch) * 1e3
        latency = concurrency / rate * 1e3 + setting.max_queue_delay_us / 1e3
        holds = latency <= slo.limit_ms
        return Trial(
            setting=setting, concurrency=concurrency, throughput=rate, latency_ms=latency, holds=holds
        )

    return measure, measured


def test_a_cell_that_does_not_batch_is_refused() -> None:
    with pytest.raises(UserError, match="max_batch_size 0"):
        grid(Serving(batching="disabled", max_batch_size=0), Axes())


def test_the_best_of_the_whole_grid_is_found_with_a_part_of_it() -> None:
    slo = parse("p99=30ms")
    settings, most = grid(SERVING, Axes(instances=(1, 2, 4, 8))), 64
    measure, measured = formula(slo)
    trace = search(settings, measure, slo, most)
    best = winner(trace)
    assert best is not None and best.throughput is not None
    used = len(measured)
    points = [2**n for n in range(7)]
    every = [measure(setting, concurrency) for setting in settings for concurrency in points]
    assert best.throughput >= 0.98 * max(t.throughput or 0 for t in every if t.holds)
    assert best.setting.instances == 2
    assert used < len(every) / 3
    assert len({trial.setting for trial in trace}) == len(settings)


def test_more_instances_are_left_out_once_they_do_not_help() -> None:
    slo = parse("p99=1s")
    measure, measured = formula(slo, cores=1)
    trace = search(grid(SERVING, Axes(instances=(1, 2, 4))), measure, slo, 16)
    assert {setting.instances for setting, _ in measured} == {1, 2}
    reasons = {trial.pruned for trial in trace if trial.setting.instances == 4}
    assert reasons == {"2 instances were not better than 1"}


def test_a_delay_as_long_as_the_bound_is_not_measured() -> None:
    slo = parse("p95=5ms")
    measure, measured = formula(slo)
    trace = search(grid(SERVING, Axes(instances=(1,))), measure, slo, 16)
    assert all(setting.max_queue_delay_us < 5000 for setting, _ in measured)
    assert "its queue delay alone is the 5 ms allowed" in {trial.pruned for trial in trace}


def test_a_bound_that_nothing_holds_has_no_winner() -> None:
    slo = parse("p50=2ms")
    measure, measured = formula(slo)
    trace = search(grid(SERVING, Axes(instances=(1, 2))), measure, slo, 16)
    assert winner(trace) is None
    assert {concurrency for _, concurrency in measured} == {1}


def test_a_later_setting_must_be_worth_it() -> None:
    (one, other, *_) = grid(SERVING, Axes(instances=(1,)))
    trials = [Trial(setting=s, throughput=t, holds=True) for s, t in ((one, 100.0), (other, 101.0))]
    best = winner(trials)
    assert best is not None and best.setting == one
