"""How long each stage's own work takes, and when; the rest of a cell's time is orchestration."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

SHORT_S = 0.05
"""A wait that is shorter than this is none."""

_stages: ContextVar[dict[str, float]] = ContextVar("stages")
_waits: ContextVar[list[Wait]] = ContextVar("waits")


@dataclass(frozen=True)
class Wait:
    """A wait for a lock that another process held: for what, since when (ISO 8601, UTC), how long."""

    what: str
    began_at: str
    seconds: float


def now() -> str:
    """The time in UTC, ISO 8601 with milliseconds."""
    return datetime.now(UTC).isoformat(timespec="milliseconds")


def date_of(moment: float) -> str:
    """The time in UTC, as of `now`, of a moment of `time.perf_counter`."""
    passed = timedelta(seconds=time.perf_counter() - moment)
    return (datetime.now(UTC) - passed).isoformat(timespec="milliseconds")


@contextmanager
def collecting() -> Iterator[dict[str, float]]:
    """Seconds of work by stage name, filled by every `work` inside the block."""
    stages: dict[str, float] = {}
    token = _stages.set(stages)
    try:
        yield stages
    finally:
        _stages.reset(token)


@contextmanager
def work(stage: str) -> Iterator[None]:
    """Count the block's time as the work of `stage`, less that of stages inside it; outside `collecting` it
    counts for nothing."""
    stages = _stages.get({})
    start, before = time.perf_counter(), sum(stages.values())
    try:
        yield
    finally:
        inside = sum(stages.values()) - before
        stages[stage] = stages.get(stage, 0.0) + time.perf_counter() - start - inside


@contextmanager
def collecting_waits() -> Iterator[list[Wait]]:
    """Every `waiting` inside the block, in order."""
    waits: list[Wait] = []
    token = _waits.set(waits)
    try:
        yield waits
    finally:
        _waits.reset(token)


@contextmanager
def waiting(what: str) -> Iterator[None]:
    """The block waits for a lock; if it has to, that is kept for `collecting_waits`."""
    began_at, start = now(), time.perf_counter()
    yield
    seconds = time.perf_counter() - start
    if seconds >= SHORT_S:
        _waits.get([]).append(Wait(what, began_at, round(seconds, 3)))
