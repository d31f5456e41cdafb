"""Stage `deploy`: load one serving of a cell into its server, wait, probe it."""

from __future__ import annotations

import time

import tritonclient.grpc as triton
from prefect import task
from prefect.cache_policies import NO_CACHE
from tritonclient.utils import InferenceServerException

from tasks.configure import Configured
from tasks.core.build import Workplace
from tasks.core.clock import work
from tasks.core.environment import device_lock
from tasks.core.errors import StepError
from tasks.core.values import ArtifactRef, Endpoint, Serving
from tasks.loadgen.requests import Samples
from tasks.servers.base import Running
from tasks.servers.control import load


@task(task_run_name="deploy {serving.batching} {at.cell}", cache_policy=NO_CACHE)
def deploy(
    running: Running,
    configured: Configured,
    serving: Serving,
    samples: ArtifactRef,
    at: Workplace,
) -> Endpoint:
    """Load the model with the wanted serving and send it one sample.

    Raises:
        StepError: it did not load, or its first request failed.
    """
    with device_lock(at.profile, exclusive=False), work("deploy"):
        one = Samples.read(at.site.store.path(samples), configured.dynamic).batch(0, 1)
        with triton.InferenceServerClient(running.grpc_url) as client:
            start = time.perf_counter()
            config = configured.static if serving.batching == "static" else configured.dynamic
            load(client, configured.model, config, timeout_s=serving.load_timeout_s, log=running.log)
            load_s = time.perf_counter() - start
            start = time.perf_counter()
            try:
                client.infer(configured.model, one.inputs(), client_timeout=serving.load_timeout_s)
            except InferenceServerException as error:
                raise StepError(f"the first request failed: {error}", log=running.log) from error
            first_request_ms = (time.perf_counter() - start) * 1e3
    return Endpoint(
        grpc_url=running.grpc_url,
        http_url=running.http_url,
        model=configured.model,
        shm_prefix=running.shm_prefix,
        server=running.provider,
        server_version=running.version,
        server_log=running.log,
        backend=serving.backend,
        load_s=load_s,
        first_request_ms=first_request_ms,
    )
