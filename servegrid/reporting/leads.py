"""The lead of the best cell over the next one: how large it is, and whether a difference was found at all."""

from __future__ import annotations

from collections.abc import Sequence

from servegrid.campaign.results import Row
from servegrid.domain.values import Value
from servegrid.loadgen.base import STABLE_WINDOWS
from servegrid.regression.intervals import independent

CONFIDENCE = 0.99
"""Of the interval of a lead."""
FLOORS = {"throughput": 0.05, "p99_ms": 0.53}
"""Two runs of one cell differ by so much, which the windows of one run do not show. Throughput: campaigns
repeated on one card were within 4.2 % (docs/experiments/repeated-campaigns.md); p99: nine in ten of 154 pairs
of points in successive campaigns on a shared host were within 53 %."""
CHEAPER = {"instances": "fewer instances", "artifact_bytes": "the smaller artifact"}
"""Column -> what speaks for the cell with the smaller value, the most important first."""


class Lead(Value):
    """A relative lead over the cell `over`, with the bounds of its interval where there are windows.

    real: whether a difference was found; cheaper: the cheaper cell of two without one, and why.
    """

    over: str
    change: float
    low: float | None = None
    high: float | None = None
    real: bool = True
    cheaper: str = ""

    @property
    def text(self) -> str:
        """The lead in words."""
        interval = ""
        if self.low is not None and self.high is not None:
            interval = f"{CONFIDENCE:.0%} interval {self.low:+.1%} to {self.high:+.1%}"
        if not self.real:
            shown = ", ".join(filter(None, [f"{self.change:+.1%}", interval]))
            return f"no difference found from {self.over} ({shown}){self.cheaper and f'; {self.cheaper}'}"
        large = f"{1 + self.change:.1f}x the next cell"
        text = large if self.change >= 1 else f"{self.change:+.1%} over the next cell"
        return f"{text} ({interval})" if interval else text


def lead_over(column: str, windows: str, *, most: bool, first: Row, second: Row) -> Lead:
    """The lead of a point over the next cell's in a column, of which the highest (`most`) or lowest is best.

    A difference is real if it exceeds what two runs of one cell differ by and, for a throughput, the
    interval from the last windows excludes zero.
    """
    ratio = first[column] / second[column]
    change = (ratio if most else 1 / ratio) - 1
    interval = None
    if column == "throughput":
        interval = independent(_last(second[windows]), _last(first[windows]), CONFIDENCE)
    real = change > FLOORS.get(column, 0.0) and (interval is None or interval.low > 0)
    return Lead(
        over=second["cell"],
        change=change,
        low=interval and interval.low,
        high=interval and interval.high,
        real=real,
        cheaper="" if real else _cheaper(first, second),
    )


def _last(windows: Sequence[float] | None) -> list[float]:
    return [value for value in (windows or [])[-STABLE_WINDOWS:] if value > 0]


def _cheaper(first: Row, second: Row) -> str:
    for column, reason in CHEAPER.items():
        a, b = first.get(column), second.get(column)
        if a is not None and b is not None and a != b:
            return f"{(first if a < b else second)['cell']} has {reason}"
    return ""
