"""The progress artifact of a task, as a real Prefect server shows it."""

from __future__ import annotations

import contextlib
from typing import Any

import pytest
from prefect import task
from prefect.settings import PREFECT_API_URL, temporary_settings

from tasks.progress import progress


@task
def plan(name: str, *, breaks: bool) -> None:
    """One step of four, and no more."""
    with progress(4, name) as advance:
        advance()
        if breaks:
            raise ValueError("broke off")


@pytest.mark.parametrize(("breaks", "shown"), [(False, 100.0), (True, 25.0)])
def test_the_bar_is_full_where_the_work_ended_well_with_fewer_steps(
    api: Any, breaks: bool, shown: float
) -> None:
    name = f"breaks {breaks}"
    with temporary_settings({PREFECT_API_URL: api.url}), contextlib.suppress(ValueError):
        plan(name, breaks=breaks)
    found = api.post("artifacts/filter", {"artifacts": {"type": {"any_": ["progress"]}}, "limit": 200})
    assert [bar["data"] for bar in found if bar["description"] == name] == [shown]
