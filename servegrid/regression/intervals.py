"""Confidence intervals of a relative change, from the t tests of scipy.stats on logarithms.

Times and rates vary by factors, so logarithms are compared: a difference of 0.05 there is a change of 5.1 %,
and means are geometric. Two independent sets get Welch's interval, pairs the interval of their differences.
Several intervals of one family are widened so that all hold together with the wanted confidence (O. J. Dunn,
"Multiple comparisons among means", JASA 56, 1961: the Bonferroni bound).
"""

from __future__ import annotations

import functools
import math
import warnings
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from servegrid.domain.values import Value


class Interval(Value):
    """A relative change, and its bounds: 0.05 is 5 % more."""

    low: float
    change: float
    high: float

    @property
    def floor(self) -> float:
        """The noise floor: half of the interval's width, as a relative change. Smaller changes are
        not detectable."""
        if self.low <= -1 or math.isinf(self.high):
            return math.inf  # figures that agree on nothing
        return math.expm1((math.log1p(self.high) - math.log1p(self.low)) / 2)


def together(confidence: float, count: int) -> float:
    """The confidence of each of `count` intervals that hold together with `confidence`."""
    return 1 - (1 - confidence) / max(count, 1)


def independent(a: Sequence[float], b: Sequence[float], confidence: float) -> Interval | None:
    """The change from `a` to `b`, positive figures of independent repeats, by Welch's t test; None with fewer
    than two of either."""
    if min(len(a), len(b)) < 2:
        return None
    from scipy import stats  # slow to import

    return _interval(functools.partial(stats.ttest_ind, equal_var=False), a, b, confidence)


def paired(a: Sequence[float], b: Sequence[float], confidence: float) -> Interval | None:
    """The change from `a` to `b`, positive figures of interleaved runs, by the paired t test; None with fewer
    than two pairs."""
    if len(a) != len(b):
        raise ValueError(f"{len(a)} and {len(b)} figures make no pairs")
    if len(a) < 2:
        return None
    from scipy import stats

    return _interval(stats.ttest_rel, a, b, confidence)


def _interval(
    test: Callable[..., Any], a: Sequence[float], b: Sequence[float], confidence: float
) -> Interval:
    logs = [np.log(np.asarray(side, dtype=float)) for side in (b, a)]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)  # equal figures give an interval of no width
        bounds = test(*logs).confidence_interval(confidence)
    with np.errstate(over="ignore"):  # the bounds of figures that vary without limit are infinite
        low, change, high = np.expm1((bounds.low, logs[0].mean() - logs[1].mean(), bounds.high))
    return Interval(low=float(low), change=float(change), high=float(high))
