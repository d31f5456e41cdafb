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
    """A progress bar of about `total` steps; the block calls the yielded function after each. At the end of
    the block the bar is full, also after fewer steps. Outside a task run there is no bar."""
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
