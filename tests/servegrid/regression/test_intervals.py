"""Intervals of a relative change: against SciPy's own tests, and how often they miss."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy import stats

from servegrid.regression.intervals import Interval, independent, paired, together

RANDOM = np.random.default_rng(5)


def test_independent_is_welchs_interval_of_the_logarithms() -> None:
    a, b = np.exp(RANDOM.normal(2, 0.3, 5)), np.exp(RANDOM.normal(2.4, 0.1, 8))
    wanted = stats.ttest_ind(np.log(b), np.log(a), equal_var=False).confidence_interval(0.99)
    found = independent(a, b, 0.99)
    assert found is not None
    assert (found.low, found.high) == pytest.approx((math.expm1(wanted.low), math.expm1(wanted.high)))
    assert math.log1p(found.change) == pytest.approx(np.log(b).mean() - np.log(a).mean())


def test_paired_is_students_interval_of_the_differences() -> None:
    a, b = np.exp(RANDOM.normal(2, 0.3, 6)), np.exp(RANDOM.normal(2.4, 0.1, 6))
    wanted = stats.ttest_rel(np.log(b), np.log(a)).confidence_interval(0.95)
    found = paired(a, b, 0.95)
    assert found is not None
    assert (found.low, found.high) == pytest.approx((math.expm1(wanted.low), math.expm1(wanted.high)))


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
