"""Chooses the next request rate from the rates that met an objective and those that did not. Pure."""

from __future__ import annotations

from collections.abc import Mapping

RESOLUTION = 0.05
"""The search ends when the rates that hold and fail are this close, as a share."""
GROWTH = 1.25
LEAST = 1 / 64
"""Share of the first rate below which the search gives up."""


def highest_held(tried: Mapping[float, bool]) -> float | None:
    """The highest rate that holds below every one that does not."""
    failed = min((rate for rate, held in tried.items() if not held), default=float("inf"))
    return max((rate for rate, held in tried.items() if held and rate < failed), default=None)


def next_rate(tried: Mapping[float, bool], first: float) -> float | None:
    """The next rate: up, to `first` at least, until one fails; down, to `first` at most, until one holds;
    then halfway between. None when the highest that holds is known, or that none does."""
    if not tried:
        return first
    held, failed = (
        highest_held(tried),
        min((rate for rate, holds in tried.items() if not holds), default=None),
    )
    if failed is None:
        assert held is not None
        return max(first, held * GROWTH)
    if held is None:
        lower = min(first, failed / 2)
        return lower if lower >= first * LEAST else None
    return (held + failed) / 2 if failed - held > RESOLUTION * failed else None
