"""Whether a change is a regression: the one rule behind every form of a comparison."""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import geometric_mean
from typing import Literal

from servegrid.domain.values import Value
from servegrid.regression.intervals import Interval, independent, paired, together

Change = Literal["regressed", "improved", "same", "unclear"]

CONFIDENCE = 0.99
"""Of all intervals of one cell together: of a hundred cells that did not change, one at most is flagged."""
RELEVANT = 0.02
"""A change below this is of no interest: two loads of one model differ by about as much."""
RELEVANT_SINGLE = 0.10
"""The same where each side ran once: windows of one run do not tell how runs differ, and within 10 % they
count as equal (the rule of a stable point)."""

HIGHER_IS_BETTER = ("throughput",)


class Figures(Value):
    """One column at one point, which is named in words: the repeats of either side. `in_pairs`: they were
    taken in turns; `doubt`: why they may hide a change."""

    point: str
    metric: str
    a: tuple[float, ...]
    b: tuple[float, ...]
    in_pairs: bool = False
    doubt: str = ""


class Judged(Value):
    """Figures with their geometric means, and what is to be said of them."""

    figures: Figures
    a: float
    b: float
    interval: Interval | None
    change: Change

    @property
    def text(self) -> str:
        """The change and its interval, in percent of A; and what is to be doubted of them."""
        if self.interval is None:
            return "too few repeats"
        i, doubt = self.interval, self.figures.doubt
        return f"{i.change:+.1%} ({i.low:+.1%} to {i.high:+.1%}){doubt and f'; {doubt}'}"


class CellComparison(Value):
    """One cell of both sides; `broken` says why it cannot be compared by figures (worse: a regression)."""

    cell: str
    judged: tuple[Judged, ...] = ()
    differences: tuple[str, ...] = ()
    only_in: Literal["", "A", "B"] = ""
    broken: str = ""

    @property
    def change(self) -> Change:
        """The worst of its points, where any is certain."""
        changes = [entry.change for entry in self.judged]
        if self.broken or "regressed" in changes:
            return "regressed"
        if "improved" in changes:
            return "improved"
        return "same" if changes and set(changes) == {"same"} else "unclear"


class Comparison(Value):
    """Two sides, how they were compared, and every cell. `conditions`: what differs around them."""

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
    """Every figure of one cell. Changed is what lies wholly beyond `relevant` (a share), the same what lies
    wholly within it and is not in doubt: what hides a change makes it smaller, not larger."""
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
