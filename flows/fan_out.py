"""A campaign's `qualify` runs on the workers of the profiles' pools: started, followed, cancelled."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import cast
from uuid import UUID

import httpx
from prefect import runtime
from prefect.client.orchestration import SyncPrefectClient, get_client
from prefect.client.schemas.filters import FlowRunFilter, FlowRunFilterId
from prefect.client.schemas.objects import FlowRun, State, StateType
from prefect.deployments import run_deployment
from prefect.exceptions import ObjectNotFound, PrefectException
from prefect.states import Cancelling, Crashed

from flows.campaigns import run_lease
from flows.options import SweepOptions
from tasks.core import leases
from tasks.core.errors import UserError

log = logging.getLogger("servegrid")

POLL_S = 1.0
UNTAKEN_S = 60.0
"""After this time without a worker that takes a run, how to start one is told."""
GONE_S = 15.0
"""A run in state Running whose lease nobody held for this long is dead, and nobody is left to say so."""


class CancelledError(Exception):
    """The campaign's own flow run was cancelled."""


def run_all(
    parts: Sequence[SweepOptions], folder: Path, attempt: int, on_rows: Callable[[], None]
) -> dict[str, State]:
    """One `qualify` run for each part, on a worker of its profile; their final states by `model on profile`.

    `on_rows` is called whenever rows have come. However this ends, no run is left that still works.

    Raises:
        CancelledError: the campaign was cancelled.
    """
    with get_client(sync_client=True) as client:
        started: dict[UUID, SweepOptions] = {}
        try:
            for part in parts:
                started[_start(part, folder, attempt).id] = part
            return _follow(client, started, folder, on_rows)
        except BaseException:
            _cancel(client, started)
            raise


def check_deployments(parts: Sequence[SweepOptions]) -> None:
    """Raises UserError when a profile has no deployment, or a pool not the queue."""
    with get_client(sync_client=True) as client:
        for profile, queue in dict.fromkeys((part.place, part.queue) for part in parts):
            try:
                deployment = client.read_deployment_by_name(f"qualify/{profile}")
                client.read_work_queue_by_name(queue, work_pool_name=deployment.work_pool_name)
            except ObjectNotFound as error:
                raise UserError(
                    f"there is no deployment 'qualify/{profile}' with a queue {queue!r}; "
                    "run `servegrid pools create` and "
                    "`prefect --no-prompt deploy --all --prefect-file deployments/prefect.yaml`"
                ) from error


def _start(part: SweepOptions, folder: Path, attempt: int) -> FlowRun:
    """The key carries the attempt: with the same key Prefect gives the dead run back."""
    run = run_deployment(
        f"qualify/{part.place}",
        parameters={
            "options": part.model_dump(mode="json", exclude_unset=True),
            "campaign": folder.name,
            "attempt": attempt,
        },
        flow_run_name=part.label,
        tags=[folder.name, part.title, part.place],
        idempotency_key=f"{folder.name}/{attempt}/{part.label}",
        work_queue_name=part.queue,
        timeout=0,
    )
    return cast(FlowRun, run)  # not a coroutine, where nothing is asynchronous


def _follow(
    client: SyncPrefectClient, started: dict[UUID, SweepOptions], folder: Path, on_rows: Callable[[], None]
) -> dict[str, State]:
    ended: dict[str, State] = {}
    begin, seen, untold, alive = time.monotonic(), 0, dict(started), dict.fromkeys(started, time.monotonic())
    own = runtime.flow_run.id
    while len(ended) < len(started):
        time.sleep(POLL_S)
        states = _states(client, [*started, *([UUID(own)] if own else [])])
        if own and states.pop(UUID(own)).type in (StateType.CANCELLING, StateType.CANCELLED):
            raise CancelledError
        for run, part in started.items():
            state = states[run]
            if state.is_final():
                if part.label not in ended:
                    log.info("%s: %s", part.label, state.name if state.is_completed() else _line(state))
                ended[part.label] = state
            elif state.is_running():
                if leases.holder(run_lease(folder, part)) is not None:
                    alive[run] = time.monotonic()
                elif time.monotonic() - alive[run] > GONE_S:
                    client.set_flow_run_state(run, Crashed(message="its process is gone"), force=True)
            else:
                alive[run] = time.monotonic()
                if run in untold and time.monotonic() - begin > UNTAKEN_S:
                    untold.pop(run)
                    command = f"prefect worker start --pool gpu-{part.place}"
                    log.info("%s: no worker has taken it yet; `%s` starts one", part.label, command)
        size = _size(folder / "rows.jsonl")
        if size != seen:
            seen = size
            on_rows()
    return ended


def _states(client: SyncPrefectClient, runs: list[UUID]) -> dict[UUID, State]:
    found = client.read_flow_runs(flow_run_filter=FlowRunFilter(id=FlowRunFilterId(any_=runs)))
    return {run.id: run.state for run in found if run.state}


def _cancel(client: SyncPrefectClient, started: dict[UUID, SweepOptions]) -> None:
    """Ask for the end of every run that has not ended: workers stop those that they have begun. Where Prefect
    does not answer, each of them still sees its leader go."""
    with suppress(httpx.HTTPError, PrefectException):
        for run, state in _states(client, list(started)).items():
            if not state.is_final():
                client.set_flow_run_state(run, Cancelling(message="the campaign ended"))


def _line(state: State) -> str:
    return f"{state.name}: {state.message}" if state.message else str(state.name)


def _size(path: Path) -> int:
    return path.stat().st_size if path.exists() else 0
