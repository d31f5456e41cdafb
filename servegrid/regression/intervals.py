"""Intervals of a relative change, by Student's t on logarithms.

Times and rates vary by factors, so logarithms are compared: a difference of 0.05 there is a change of
5.1 %, and means are geometric. Of two independent sets Welch's interval is taken (B. L. Welch, "The
generalization of Student's problem when several different population variances are involved", Biometrika
34, 1947), of pairs the one of their differences (Student, "The probable error of a mean", Biometrika 6,
1908). Several intervals of one family are widened so that all hold together with the wanted confidence
(O. J. Dunn, "Multiple comparisons among means", JASA 56, 1961: the Bonferroni bound).
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from servegrid.domain.values import Value


class Interval(Value):
    """A relative change, and its bounds: 0.05 is 5 % more."""

    low: float
    change: float
    high: float

    @property
    def floor(self) -> float:
        """The noise floor: half of the interval's width, as a relative change. A smaller change than this
        cannot be told from none."""
        if self.low <= -1 or math.isinf(self.high):
            return math.inf  # figures that agree on nothing
        return math.expm1((math.log1p(self.high) - math.log1p(self.low)) / 2)


def together(confidence: float, count: int) -> float:
    """The confidence of each of `count` intervals that hold together with `confidence`."""
    return 1 - (1 - confidence) / max(count, 1)


def independent(a: Sequence[float], b: Sequence[float], confidence: float) -> Interval | None:
    """The change from `a` to `b`, positive figures of independent repeats; None with fewer than two of
    either."""
    if min(len(a), len(b)) < 2:
        return None
    logs = [np.log(np.asarray(side, dtype=float)) for side in (a, b)]
    parts = [float(side.var(ddof=1)) / len(side) for side in logs]
    error = math.fsum(parts)
    freedom = sum(part**2 / (len(side) - 1) for part, side in zip(parts, logs, strict=True))
    freedom = error**2 / freedom if freedom > 0 else 1.0
    return _interval(float(logs[1].mean() - logs[0].mean()), math.sqrt(error), freedom, confidence)


def paired(a: Sequence[float], b: Sequence[float], confidence: float) -> Interval | None:
    """The change from `a` to `b`, positive figures taken in turns, pair by pair; None with fewer than two."""
    if len(a) != len(b):
        raise ValueError(f"{len(a)} and {len(b)} figures make no pairs")
    if len(a) < 2:
        return None
    differences = np.log(np.asarray(b, dtype=float)) - np.log(np.asarray(a, dtype=float))
    error = float(differences.std(ddof=1)) / math.sqrt(len(differences))
    return _interval(float(differences.mean()), error, len(differences) - 1, confidence)


def _interval(change: float, error: float, freedom: float, confidence: float) -> Interval:
    from scipy.special import stdtrit  # the inverse of Student's t distribution; slow to import

    half = float(stdtrit(freedom, (1 + confidence) / 2)) * error
    with np.errstate(over="ignore"):  # infinite, where figures agree on nothing
        low, middle, high = (float(np.expm1(value)) for value in (change - half, change, change + half))
    return Interval(low=low, change=middle, high=high)
