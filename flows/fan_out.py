"""Starts, follows and cancels a campaign's `qualify` runs on the workers of the profiles' pools."""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Callable, Iterable, Sequence
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

from flows.cancelling import CANCELLED, CancelledError
from servegrid.campaign import leases
from servegrid.campaign.campaign import run_lease
from servegrid.campaign.layout import CampaignLayout
from servegrid.domain.errors import UserError
from servegrid.domain.plugins import load_profile
from servegrid.domain.profile import worker_command
from servegrid.plan.options import SweepOptions
from servegrid.store.site import default_site

log = logging.getLogger("servegrid")

POLL_S = 1.0
UNTAKEN_S = 60.0
"""After this time without a worker for a run, the log says how to start one."""
GONE_S = {StateType.PENDING: 90.0, StateType.RUNNING: 6.0}
"""A run in this state is dead if no process held its lease for this long. (A run is Pending while a worker
starts its process, which takes the lease first.)"""


def run_all(parts: Sequence[SweepOptions], folder: Path, attempt: int, on_rows: Callable[[], None]) -> None:
    """Start one `qualify` run for each part, on a worker of its profile, and wait until all have ended.

    `on_rows` is called whenever new rows exist. However this ends, it leaves no run at work.

    Raises:
        CancelledError: the campaign was cancelled.
    """
    with get_client(sync_client=True) as client:
        runs: dict[UUID, _Watched] = {}
        try:
            for part in parts:
                pool = load_profile(default_site().profiles, part.place).pool
                runs[_start(part, folder, attempt).id] = _Watched(part, folder, pool)
            _follow(client, runs, folder, on_rows)
        except BaseException:
            _cancel(client, runs)
            raise


def check_deployments(options: SweepOptions) -> None:
    """Raises UserError if a profile is unknown, has no deployment, or its pool lacks the queue."""
    profiles = [load_profile(default_site().profiles, name).name for name in dict.fromkeys(options.profiles)]
    with get_client(sync_client=True) as client:
        for profile in profiles:
            try:
                deployment = client.read_deployment_by_name(f"qualify/{profile}")
                client.read_work_queue_by_name(options.queue, work_pool_name=deployment.work_pool_name)
            except ObjectNotFound as error:
                raise UserError(
                    f"there is no deployment 'qualify/{profile}' with a queue {options.queue!r}; "
                    "run `servegrid pools create` and "
                    "`prefect --no-prompt deploy --all --prefect-file deployments/prefect.yaml`"
                ) from error


def _start(part: SweepOptions, folder: Path, attempt: int) -> FlowRun:
    """Start a run. The key holds the attempt: for the same key Prefect returns the dead run."""
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
    client: SyncPrefectClient, watched: dict[UUID, _Watched], folder: Path, on_rows: Callable[[], None]
) -> None:
    own, seen = UUID(runtime.flow_run.id), 0
    while not all(entry.ended for entry in watched.values()):
        time.sleep(POLL_S)
        states = _states(client, [*watched, own])
        if own not in states or states.pop(own).type in CANCELLED:
            raise CancelledError
        for run in watched.keys() - states.keys():  # deleted in the UI
            states[run] = Crashed(message="its run was deleted")
        for run, state in states.items():
            if watched[run].is_dead(state):
                client.set_flow_run_state(run, Crashed(message="its process is gone"), force=True)
        size = _size(CampaignLayout(folder=folder).rows)
        if size != seen:
            seen = size
            on_rows()


class _Watched:
    """One run seen from outside: its state, since when, and whether a process holds its lease."""

    def __init__(self, part: SweepOptions, folder: Path, pool: str) -> None:
        self.label, self._pool = part.label, pool
        self._lease = run_lease(folder, part)
        self._kind: StateType | None = None
        self._since = self._begin = time.monotonic()
        self._untaken = False
        self.ended = False

    def is_dead(self, state: State) -> bool:
        """Record the state; true if only a process can change it, and no process holds the lease."""
        now = time.monotonic()
        if state.is_final():
            if not self.ended:
                log.info("%s: %s", self.label, state.name if state.is_completed() else _line(state))
            self.ended = True
            return False
        if state.is_scheduled() and not self._untaken and now - self._begin > UNTAKEN_S:
            self._untaken = True
            command = worker_command(self._pool)
            log.info("%s: no worker has taken it yet; `%s` starts one", self.label, command)
        if state.type != self._kind or leases.holder(self._lease) is not None:
            self._kind, self._since = state.type, now
        return now - self._since > GONE_S.get(state.type, math.inf)


def _states(client: SyncPrefectClient, runs: list[UUID]) -> dict[UUID, State]:
    found = client.read_flow_runs(flow_run_filter=FlowRunFilter(id=FlowRunFilterId(any_=runs)))
    return {run.id: run.state for run in found if run.state}


def _cancel(client: SyncPrefectClient, runs: Iterable[UUID]) -> None:
    """Cancel every run that has not ended; workers stop theirs. If Prefect does not answer, each run still
    ends when its leader is gone."""
    with suppress(httpx.HTTPError, PrefectException):
        for run, state in _states(client, list(runs)).items():
            if not state.is_final():
                client.set_flow_run_state(run, Cancelling(message="the campaign ended"))


def _line(state: State) -> str:
    return f"{state.name}: {state.message}" if state.message else str(state.name)


def _size(path: Path) -> int:
    return path.stat().st_size if path.exists() else 0
