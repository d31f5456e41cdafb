"""Prefect's work pools, queues and deployments: for each profile a process pool, with a deployment of
`qualify` on it; and one pool for the campaigns that lead.

A campaign that runs on workers waits for its `qualify` runs: in a pool of its own it takes no worker of a
device.
"""

from __future__ import annotations

from prefect.client.orchestration import SyncPrefectClient, get_client
from prefect.client.schemas.actions import WorkPoolCreate
from prefect.exceptions import ObjectAlreadyExists, ObjectNotFound
from prefect.utilities.callables import parameter_schema

from flows.qualify import qualify
from servegrid.domain.plugins import load_profile
from servegrid.domain.profile import worker_command
from servegrid.domain.values import Value
from servegrid.store.site import Site

CAMPAIGNS = "campaigns"
QUEUES = {"default": 1, "nightly": 10}
"""The queues of every pool -> priority; a worker takes from the first that has something."""
PULL = {"prefect.deployments.steps.set_working_directory": {"directory": "/"}}
"""The package is installed where a worker runs: there is nothing to pull, and any folder does. Without a step
Prefect would send each worker to the folder of the process that made the deployment."""
JOB = {"env": {"PREFECT_LOGGING_EXTRA_LOGGERS": "servegrid"}}


class Pool(Value):
    """A pool that there is now, and whether it, a queue or its deployment was made just now."""

    name: str
    profile: str | None
    created: bool

    @property
    def worker(self) -> str:
        """The command that starts a worker of the pool."""
        return worker_command(self.name)


def create(site: Site) -> list[Pool]:
    """Make every pool, queue and deployment that is not there. A pool that is there stays as it is; a
    deployment is made anew.

    Raises:
        UserError: a profile's file is wrong.
    """
    profiles = [load_profile(site.profiles, path.stem) for path in sorted(site.profiles.glob("*.yaml"))]
    with get_client(sync_client=True) as client:
        pools = [Pool(name=CAMPAIGNS, profile=None, created=_create(client, CAMPAIGNS))]
        for profile in profiles:
            made = [_create(client, profile.pool), _deploy(client, profile.name, profile.pool)]
            pools.append(Pool(name=profile.pool, profile=profile.name, created=any(made)))
    return pools


def _create(client: SyncPrefectClient, pool: str) -> bool:
    """Whether the pool or one of its queues was not there."""
    created = False
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
    return created


def _deploy(client: SyncPrefectClient, profile: str, pool: str) -> bool:
    """Whether the deployment `qualify/<profile>` was not there."""
    try:
        client.read_deployment_by_name(f"{qualify.name}/{profile}")
        created = False
    except ObjectNotFound:
        created = True
    client.create_deployment(
        client.create_flow_from_name(qualify.name),
        profile,
        description=f"Claims cells of a campaign on {profile}; campaigns with `workers` start it. By hand it "
        "wants a `campaign`, the name of a folder of results.",
        entrypoint=f"{qualify.fn.__module__}.{qualify.fn.__name__}",
        work_pool_name=pool,
        parameters={"options": {"profiles": [profile]}},
        parameter_openapi_schema=parameter_schema(qualify).model_dump_for_openapi(),
        enforce_parameter_schema=True,
        pull_steps=[PULL],
        job_variables=JOB,
        tags=["servegrid"],
    )
    return created
