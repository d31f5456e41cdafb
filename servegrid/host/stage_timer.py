"""How long each stage's own work takes, and when; the rest of a cell's time is orchestration."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from datetime import UTC, datetime, timedelta

_stages: ContextVar[dict[str, float]] = ContextVar("stages")


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
