"""Chooses the next concurrency from the measured ones: bracket the knee, refine, stop. Pure.

The knee is where power, throughput over latency, is greatest: beyond it more load buys less throughput than
it costs in latency (L. Kleinrock, Power and deterministic rules of thumb for probabilistic problems in
computer communications, ICC 1979). A server of n equal instances without batching has it at n.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping

from servegrid.domain.values import Value

GAIN = 0.03
"""The server is full when two doublings of the concurrency add less than this share of throughput."""
STEP = 4
"""The knee's neighbours are refined until they are within a quarter of it."""


class Measured(Value):
    """A measured concurrency: inferences/s, and the average latency in ms."""

    throughput: float
    avg_ms: float

    @property
    def power(self) -> float:
        return self.throughput / self.avg_ms


class Next(Value):
    """The next concurrency, and why."""

    concurrency: int
    why: str


def knee(points: Mapping[int, Measured]) -> int:
    """The concurrency of the greatest power; the smallest of equal ones."""
    return max(sorted(points), key=lambda c: points[c].power)


def next_concurrency(points: Mapping[int, Measured], most: int) -> Next | None:
    """The next concurrency from 1 to `most`; None when the knee is known."""
    if not points:
        return Next(concurrency=1, why="start")
    return _bracket(points, most) or _refine(points, most)


def _bracket(points: Mapping[int, Measured], most: int) -> Next | None:
    """The next doubling, until the server is full."""
    doublings = [c for c in _doublings(most) if c in points]
    following = next((c for c in _doublings(most) if c not in points), None)
    if following is None:
        return None
    last = [points[c].throughput for c in doublings[-3:]]
    gain = max(last[1:], default=0.0) / last[0] - 1
    if len(last) == 3 and gain < GAIN:
        return None
    why = f"doubling: throughput grew by {gain:.1%} in the last two" if len(last) > 1 else "doubling from 1"
    return Next(concurrency=following, why=why)


def _refine(points: Mapping[int, Measured], most: int) -> Next | None:
    """The middle of the wider gap next to the knee, until both gaps are small enough."""
    best, measured = knee(points), sorted(points)
    below = max((c for c in measured if c < best), default=best)
    above = min((c for c in measured if c > best), default=best)
    low, high = max((below, best), (best, above), key=lambda gap: gap[1] - gap[0])
    if high - low <= max(1, best // STEP):
        return None
    why = f"refine: most power at {best}, its neighbours are {below} and {above}"
    return Next(concurrency=(low + high) // 2, why=why)


def _doublings(most: int) -> list[int]:
    """1, 2, 4, ... and `most`."""
    powers = itertools.takewhile(lambda c: c < most, (2**i for i in itertools.count()))
    return [*powers, most]
