"""Prefect's work pools and queues: one process pool a profile, one for the campaigns that lead.

A campaign that runs on workers waits for its `qualify` runs: in a pool of its own it takes no worker of a
device.
"""

from __future__ import annotations

from prefect.client.orchestration import get_client
from prefect.client.schemas.actions import WorkPoolCreate
from prefect.exceptions import ObjectAlreadyExists, ObjectNotFound

from servegrid.domain.plugins import load_profile
from servegrid.domain.values import Value
from servegrid.store.site import Site

CAMPAIGNS = "campaigns"
QUEUES = {"default": 1, "nightly": 10}
"""The queues of every pool -> priority; a worker takes from the first that has something."""


class Pool(Value):
    """A pool that there is now, and whether it or one of its queues was made just now."""

    name: str
    profile: str | None
    created: bool


def create(site: Site) -> list[Pool]:
    """Make every pool and queue that is not there; what is there stays as it is.

    Raises:
        UserError: a profile's file is wrong.
    """
    profiles = [load_profile(site.profiles, path.stem) for path in sorted(site.profiles.glob("*.yaml"))]
    wanted = {profile.pool: profile.name for profile in profiles}
    return [_create(CAMPAIGNS, None), *(_create(pool, name) for pool, name in wanted.items())]


def _create(pool: str, profile: str | None) -> Pool:
    created = False
    with get_client(sync_client=True) as client:
        try:
            client.create_work_pool(WorkPoolCreate(name=pool, type="process"))
            created = True
        except ObjectAlreadyExists:
            pass
        for queue, priority in QUEUES.items():
            try:
                client.read_work_queue_by_name(queue, work_pool_name=pool)
            except ObjectNotFound:
                client.create_work_queue(queue, work_pool_name=pool, priority=priority)
                created = True
    return Pool(name=pool, profile=profile, created=created)
