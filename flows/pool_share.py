"""One pool's share of a campaign: its cells, and the runs in which workers claim them."""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import cast
from uuid import UUID

from prefect.client.orchestration import SyncPrefectClient
from prefect.client.schemas.objects import FlowRun, State, StateType
from prefect.deployments import run_deployment
from prefect.exceptions import ObjectNotFound
from prefect.states import Cancelled, Completed, Crashed

from servegrid.campaign import leases
from servegrid.campaign.campaign import ENDED
from servegrid.campaign.claims import CellState, Claims
from servegrid.campaign.layout import CampaignLayout
from servegrid.domain.profile import worker_command
from servegrid.plan.model_plan import Key
from servegrid.plan.options import SweepOptions

log = logging.getLogger("servegrid")

UNTAKEN_S = 60.0
"""After this time without a worker for any run, the log says how to start one."""
GONE_S = {StateType.PENDING: 90.0, StateType.RUNNING: 6.0}
"""A run in this state is dead if no process held its lease for this long. (A run is Pending while a worker
starts its process, which takes the lease first.)"""
FRUITLESS = 3
"""After so many runs that ended, while no cell did, no more are started: this pool's workers cannot work."""


class PoolShare:
    """The cells of one profile and its runs: one of them spare, while cells are unclaimed."""

    def __init__(
        self, client: SyncPrefectClient, options: SweepOptions, pool: str, claims: Claims, keys: list[Key]
    ) -> None:
        self.active: dict[UUID, WatchedRun] = {}
        """Runs that have not ended, as far as is known."""
        self._client, self._options, self._pool, self._claims = client, options, pool, claims
        self._left = keys
        self._started = self._fruitless = 0
        self._begin, self._untaken = time.monotonic(), False

    def goes_on(self, states: Mapping[UUID, State]) -> bool:
        """Look at every run and cell, and start or cancel the spare run; false once nothing is to come."""
        before = len(self._left)
        unclaimed = self._unclaimed()
        if len(self._left) < before:
            self._fruitless = 0
        for run, watched in list(self.active.items()):
            self._look_at(run, watched, states[run])
        waiting = [run for run, watched in self.active.items() if watched.kind is StateType.SCHEDULED]
        starting = sum(watched.kind is StateType.PENDING for watched in self.active.values())
        if not unclaimed or self._fruitless >= FRUITLESS:
            self._cancel(waiting)
        elif not waiting and starting < unclaimed:
            self._start()
        self._say_if_untaken(len(waiting))
        return bool(self.active)

    def _unclaimed(self) -> int:
        """The number of cells that a run could claim; those that have ended are forgotten."""
        states = {key: self._claims.state(key) for key in self._left}
        self._left = [key for key in self._left if states[key] is not CellState.ENDED]
        return sum(states[key] is CellState.OPEN for key in self._left)

    def _look_at(self, run: UUID, watched: WatchedRun, state: State) -> None:
        ended = watched.see(state)
        if ended and not state.is_final():
            self._client.set_flow_run_state(run, ended, force=True)
        if ended or state.is_final():
            found = ended or state
            log.info("%s: %s", watched.label, found.name if found.is_completed() else _line(found))
            del self.active[run]
            self._fruitless += 1

    def _start(self) -> None:
        """Start a run. The key holds the attempt: for the same key Prefect returns the dead run."""
        self._started += 1
        folder, attempt, profile = self._claims.folder, self._claims.attempt, self._options.place
        label = f"{profile}, run {self._started}"
        run = run_deployment(
            f"qualify/{profile}",
            parameters={
                "options": self._options.model_dump(mode="json", exclude_unset=True),
                "campaign": folder.name,
                "attempt": attempt,
            },
            flow_run_name=label,
            tags=[folder.name, profile],
            idempotency_key=f"{folder.name}/{attempt}/{label}",
            work_queue_name=self._options.queue,
            timeout=0,
        )
        found = cast(FlowRun, run)  # not a coroutine, where nothing is asynchronous
        lease = CampaignLayout(folder=folder).run(str(found.id))
        self.active[found.id] = WatchedRun(label, lease)

    def _cancel(self, waiting: list[UUID]) -> None:
        """Cancel spare runs. One that a worker has just taken finds no cell, and ends."""
        for run in waiting:
            with suppress(ObjectNotFound):  # it was deleted in the UI just now
                self._client.set_flow_run_state(run, Cancelled(message="no cell is left for it"))
            del self.active[run]

    def _say_if_untaken(self, waiting: int) -> None:
        if waiting < len(self.active):
            self._begin = time.monotonic()
        elif waiting and not self._untaken and time.monotonic() - self._begin > UNTAKEN_S:
            self._untaken = True
            command = worker_command(self._pool)
            log.info("%s: no worker has taken a run yet; `%s` starts one", self._options.place, command)


class WatchedRun:
    """One run seen from outside: its state, since when, and whether a process holds its lease."""

    def __init__(self, label: str, lease: Path) -> None:
        self.label = label
        self.kind: StateType | None = StateType.SCHEDULED
        self._lease = lease
        self._since = time.monotonic()

    def see(self, state: State) -> State | None:
        """Record the state; the state in which the run is to end, if no process is left to say so.

        A run whose process has done its work may be waiting for Prefect to take its `Completed`.
        """
        now = time.monotonic()
        lease = leases.look(self._lease)
        if state.type != self.kind or lease.held:
            self.kind, self._since = state.type, now
        if state.is_final() or now - self._since <= GONE_S.get(state.type, math.inf):
            return None
        if lease.text == ENDED:
            return Completed(message="its process has ended")
        return Crashed(message="its process is gone")


def _line(state: State) -> str:
    return f"{state.name}: {state.message}" if state.message else str(state.name)
