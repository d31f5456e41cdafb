"""Prefect's task cache in front of the artifact store.

The key of a build task is the digest of its `BuildRequest`, so the UI shows `Cached` when nothing that the
stage reads has changed, and only then.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any

from prefect import Task, task
from prefect.context import TaskRunContext

from servegrid.domain.values import ArtifactRef
from servegrid.store.build import Workplace
from servegrid.store.store import BuildRequest

log = logging.getLogger("servegrid")

Build = Callable[[BuildRequest, Workplace], ArtifactRef]
BuildTask = Task[[BuildRequest, Workplace], ArtifactRef]
Make = Callable[[BuildTask, BuildRequest, Workplace], ArtifactRef]
"""Gives the artifact of a build stage: `ensure`, or a look-up in the store that builds nothing."""


def _key(context: TaskRunContext, parameters: dict[str, Any]) -> str:
    request: BuildRequest = parameters["request"]
    return request.key


def build_task(function: Build) -> BuildTask:
    """A build stage as a Prefect task that is cached by its request."""
    decorate = task(
        task_run_name=f"{function.__name__} {{at.cell}}",
        cache_key_fn=_key,
        persist_result=True,
        result_serializer="json",
        cache_result_in_memory=False,
    )
    return decorate(function)


def ensure(stage: BuildTask, request: BuildRequest, at: Workplace) -> ArtifactRef:
    """Call a build stage and verify its artifact.

    Prefect skips the body of a cached task, so its record can point to an artifact that was damaged or
    deleted; that artifact is built again. Prefect does not write its records atomically; a truncated one is
    removed. They lie next to the store whose artifacts they point to.
    """
    records = at.site.home / "prefect-results"
    if not _whole(records / request.key):
        (records / request.key).unlink(missing_ok=True)
    stage = stage.with_options(result_storage=records)
    ref = stage(request, at)
    if isinstance(ref, ArtifactRef) and at.site.store.intact(
        ref
    ):  # a record of a class that no longer exists gives a dict
        return ref
    log.warning("the artifact of %s is damaged or missing; building it again", request.stage)
    return stage.with_options(refresh_cache=True)(request, at)


def _whole(record: Path) -> bool:
    """Whether Prefect can read this record, or there is none."""
    try:
        json.loads(record.read_bytes())
    except FileNotFoundError:
        return True
    except ValueError:
        return False
    return True
