"""Intervals of a relative change: against the textbook's formulas, and how often they miss."""

from __future__ import annotations

import math

import numpy as np
import pytest

from servegrid.regression.intervals import Interval, independent, paired, together

RANDOM = np.random.default_rng(5)


def test_independent_is_welchs_interval_of_the_logarithms() -> None:
    a = np.array([0.1, 0.3, 0.5, 0.7, 0.9])
    b = np.array([1.0, 1.1, 1.2, 1.3, 1.4, 1.5, 1.6, 1.7])
    errors = [side.var(ddof=1) / len(side) for side in (a, b)]
    freedom = sum(errors) ** 2 / (errors[0] ** 2 / 4 + errors[1] ** 2 / 7)
    assert freedom == pytest.approx(7)
    half = 3.499 * math.sqrt(sum(errors))  # t of 7 degrees of freedom
    found = independent(np.exp(a), np.exp(b), 0.99)
    assert found is not None
    bounds = math.expm1(0.85 - half), math.expm1(0.85 + half)
    assert (found.low, found.high) == pytest.approx(bounds, rel=1e-3)
    assert math.log1p(found.change) == pytest.approx(0.85)


def test_paired_is_students_interval_of_the_differences() -> None:
    a = np.array([2.0, 2.5, 3.0, 3.5, 4.0])
    differences = np.array([0.1, 0.3, 0.2, 0.4, 0.5])
    half = 4.604 * differences.std(ddof=1) / math.sqrt(5)  # t of 4 degrees of freedom
    found = paired(np.exp(a), np.exp(a + differences), 0.99)
    assert found is not None
    bounds = math.expm1(0.3 - half), math.expm1(0.3 + half)
    assert (found.low, found.high) == pytest.approx(bounds, rel=1e-3)


def test_pairs_remove_common_noise() -> None:
    drift = np.linspace(1, 3, 10)
    a, b = drift * (1 + RANDOM.normal(0, 0.002, 10)), drift * 1.1
    close, wide = paired(a, b, 0.99), independent(a, b, 0.99)
    assert close is not None and wide is not None
    assert 0.09 < close.low < close.high < 0.11
    assert wide.low < 0 < wide.high


def test_figures_that_do_not_vary_give_a_point() -> None:
    for interval in (independent((2, 2), (3, 3), 0.99), paired((2, 2), (3, 3), 0.99)):
        assert interval is not None
        assert (interval.low, interval.change, interval.high) == pytest.approx((0.5, 0.5, 0.5))
        assert interval.floor == pytest.approx(0)


def test_one_figure_of_a_side_gives_none() -> None:
    assert independent((1, 2), (1,), 0.99) is None
    assert paired((1,), (2,), 0.99) is None
    with pytest.raises(ValueError, match=r"\b2\b.*\b3\b"):
        paired((1, 2), (1, 2, 3), 0.99)


def test_the_noise_floor_is_half_of_the_width_as_a_factor() -> None:
    assert Interval(low=0, change=0.1, high=0.21).floor == pytest.approx(0.1)


def test_twelve_intervals_together_miss_as_often_as_promised() -> None:
    each, missed = together(0.95, 12), 0
    for _ in range(300):
        sides = np.exp(RANDOM.normal(0, 0.05, (12, 2, 5)))
        found = [independent(a, b, each) for a, b in sides]
        missed += any(i is not None and (i.low > 0 or i.high < 0) for i in found)
    assert missed / 300 < 0.09
