"""Starts, follows and cancels a campaign's `qualify` runs on the workers of the profiles' pools.

Prefect gives a scheduled run to whichever worker of the pool has a free slot. So each pool has one spare
run while cells are unclaimed: a worker that is free, or comes later, takes it and claims cells.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from pathlib import Path
from uuid import UUID

import httpx
from prefect import runtime
from prefect.client.orchestration import SyncPrefectClient, get_client
from prefect.client.schemas.filters import FlowRunFilter, FlowRunFilterId
from prefect.client.schemas.objects import State
from prefect.exceptions import ObjectNotFound, PrefectException
from prefect.states import Cancelling, Crashed

from flows.cancelling import CANCELLED, CancelledError
from flows.pool_share import PoolShare
from servegrid.campaign.campaign import read
from servegrid.campaign.claims import Claims
from servegrid.campaign.layout import CampaignLayout
from servegrid.campaign.results import finished
from servegrid.domain.errors import UserError
from servegrid.domain.plugins import load_profile
from servegrid.plan.options import SweepOptions
from servegrid.store.site import default_site

log = logging.getLogger("servegrid")

POLL_S = 1.0
PAGE = 200
"""So many flow runs Prefect's API lists at once."""


def run_all(options: SweepOptions, folder: Path, attempt: int, on_rows: Callable[[], None]) -> None:
    """Have workers qualify the campaign's cells, and wait until no cell is left that a run could claim.

    `on_rows` is called whenever new rows exist; its errors end nothing. However this ends, it leaves no run
    at work.

    Raises:
        CancelledError: the campaign was cancelled.
    """
    keys = [key for entry in read(folder).plans for key in entry.keys]
    left, claims = set(keys) - finished(folder), Claims(folder, attempt)
    with get_client(sync_client=True) as client:
        shares = []
        for name in dict.fromkeys(profile for _, profile in keys):
            profile = load_profile(default_site().profiles, name)
            of_profile = [key for key in keys if key in left and key[1] == name]
            shares.append(PoolShare(client, options.on(name), profile.pool, claims, of_profile))
        try:
            _follow(client, shares, folder, on_rows)
        except BaseException:
            _cancel(client, [run for share in shares for run in share.active])
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
                    "run `servegrid pools create`"
                ) from error


def _follow(
    client: SyncPrefectClient, shares: list[PoolShare], folder: Path, on_rows: Callable[[], None]
) -> None:
    own, seen = UUID(runtime.flow_run.id), 0
    while True:
        active = [run for share in shares for run in share.active]
        states = states_of(client, [*active, own])
        if own not in states or states.pop(own).type in CANCELLED:
            raise CancelledError
        for run in set(active) - states.keys():  # deleted in the UI
            states[run] = Crashed(message="its run was deleted")
        go_on = [share.goes_on(states) for share in shares]
        if not any(go_on):
            return
        size = _size(CampaignLayout(folder=folder).rows)
        if size != seen:
            seen = size
            try:
                on_rows()
            except Exception as error:
                log.warning("the report of the rows so far was not written: %s", error)
        time.sleep(POLL_S)


def states_of(client: SyncPrefectClient, runs: list[UUID]) -> dict[UUID, State]:
    """The state of each run; those that were deleted have none."""
    found = {}
    for first in range(0, len(runs), PAGE):
        these = FlowRunFilter(id=FlowRunFilterId(any_=runs[first : first + PAGE]))
        for run in client.read_flow_runs(flow_run_filter=these, limit=PAGE):
            if run.state:
                found[run.id] = run.state
    return found


def _cancel(client: SyncPrefectClient, runs: Iterable[UUID]) -> None:
    """Cancel every run that has not ended; workers stop theirs. If Prefect does not answer, each run still
    ends when its leader is gone."""
    with suppress(httpx.HTTPError, PrefectException):
        for run, state in states_of(client, list(runs)).items():
            if not state.is_final():
                client.set_flow_run_state(run, Cancelling(message="the campaign ended"))


def _size(path: Path) -> int:
    return path.stat().st_size if path.exists() else 0
