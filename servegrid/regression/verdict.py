"""The rule that decides whether a change is a regression."""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import geometric_mean
from typing import Literal

from servegrid.domain.values import Value
from servegrid.regression.intervals import Interval, independent, paired, together

Change = Literal["regressed", "improved", "same", "unclear"]

CONFIDENCE = 0.99
"""Of all intervals of one cell together: of a hundred unchanged cells at most one is flagged."""
RELEVANT = 0.02
"""Smallest change reported, from repeats: two loads of one model differ by about as much."""
RELEVANT_SINGLE = 0.10
"""The same where A and B ran once: the windows of one run do not show how runs differ, and windows within
10 % count as equal (the rule of a stable point)."""

HIGHER_IS_BETTER = ("throughput",)


class Figures(Value):
    """The values of one column at one point (named in words) in A and in B. `in_pairs`: from interleaved
    runs; `doubt`: why the values may hide a change."""

    point: str
    metric: str
    a: tuple[float, ...]
    b: tuple[float, ...]
    in_pairs: bool = False
    doubt: str = ""


class Judged(Value):
    """Figures with their geometric means and the verdict."""

    figures: Figures
    a: float
    b: float
    interval: Interval | None
    change: Change

    @property
    def text(self) -> str:
        """The change and its interval, in percent of A, and the doubt."""
        if self.interval is None:
            return "too few repeats"
        i, doubt = self.interval, self.figures.doubt
        return f"{i.change:+.1%} ({i.low:+.1%} to {i.high:+.1%}){doubt and f'; {doubt}'}"


class CellComparison(Value):
    """One cell of A and B; `broken`: the worse verdict of B, which is a regression whatever the figures."""

    cell: str
    judged: tuple[Judged, ...] = ()
    differences: tuple[str, ...] = ()
    only_in: Literal["", "A", "B"] = ""
    broken: str = ""

    @property
    def change(self) -> Change:
        """The worst change of its points; unclear if none is certain."""
        changes = [entry.change for entry in self.judged]
        if self.broken or "regressed" in changes:
            return "regressed"
        if "improved" in changes:
            return "improved"
        return "same" if changes and set(changes) == {"same"} else "unclear"


class Comparison(Value):
    """The comparison of A and B, cell by cell; `conditions`: differences of hosts and versions."""

    a: str
    b: str
    method: str
    conditions: tuple[str, ...] = ()
    cells: tuple[CellComparison, ...]

    @property
    def regressed(self) -> tuple[CellComparison, ...]:
        return tuple(cell for cell in self.cells if cell.change == "regressed")


def judge(
    figures: Sequence[Figures], confidence: float = CONFIDENCE, relevant: float | None = None
) -> tuple[Judged, ...]:
    """Judge the figures of one cell: `regressed` or `improved` where the interval lies wholly beyond
    `relevant` (a share), `same` where it lies wholly within and there is no doubt: a doubt hides changes."""
    each = together(confidence, len(figures))
    limit = RELEVANT if relevant is None else relevant
    return tuple(_judge(entry, each, limit) for entry in figures)


def _judge(figures: Figures, confidence: float, relevant: float) -> Judged:
    compare = paired if figures.in_pairs else independent
    interval = compare(figures.a, figures.b, confidence)
    change: Change = "unclear"
    if interval is not None:
        # As factors of a loss: a rate that falls to 1/f is as bad as a time that grows by f.
        better = figures.metric in HIGHER_IS_BETTER
        low, high = 1 + interval.low, 1 + interval.high
        losses = (1 / high, 1 / low if low > 0 else math.inf) if better else (low, high)
        limit = 1 + relevant
        if losses[0] > limit:
            change = "regressed"
        elif losses[1] < 1 / limit:
            change = "improved"
        elif losses[0] >= 1 / limit and losses[1] <= limit and not figures.doubt:
            change = "same"
    a, b = geometric_mean(figures.a), geometric_mean(figures.b)
    return Judged(figures=figures, a=a, b=b, interval=interval, change=change)
