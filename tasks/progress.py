"""A progress artifact in Prefect's UI, for work that takes minutes."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import cast
from uuid import UUID

from prefect.artifacts import create_progress_artifact, update_progress_artifact
from prefect.context import TaskRunContext


@contextmanager
def progress(total: int, description: str) -> Iterator[Callable[[], None]]:
    """A bar of some `total` steps; each call of what this yields is one. It is full once the block has ended
    well, which may take fewer steps. Outside a task run there is none."""
    if TaskRunContext.get() is None:
        yield lambda: None
        return
    bar = cast(UUID, create_progress_artifact(progress=0.0, description=description))
    done = 0

    def advance() -> None:
        nonlocal done
        done += 1
        update_progress_artifact(bar, progress=min(100.0, 100.0 * done / total))

    yield advance
    update_progress_artifact(bar, progress=100.0)
