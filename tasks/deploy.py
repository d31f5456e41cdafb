"""Stage `deploy`: load one serving of a cell into its server, and send the first requests."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

from prefect import task
from prefect.cache_policies import NO_CACHE
from tritonclient.utils import InferenceServerException

from servegrid.domain.errors import InfeasibleError, StepError
from servegrid.domain.values import ArtifactRef, Endpoint, Serving
from servegrid.host.device_locks import device_lock
from servegrid.host.memory import has_ended
from servegrid.host.stage_timer import work
from servegrid.servers.base import Running
from servegrid.servers.connection import connect
from servegrid.servers.control import load
from servegrid.servers.loaded_config import check_loaded
from servegrid.servers.memory_fit import check_fit
from servegrid.servers.remote import uploads
from servegrid.servers.samples import Samples
from servegrid.store.build import Workplace
from tasks.configure import Configured


@task(task_run_name="deploy {serving.batching} {at.cell}", cache_policy=NO_CACHE)
def deploy(
    running: Running,
    configured: Configured,
    serving: Serving,
    samples: ArtifactRef,
    at: Workplace,
    sizes: Sequence[int] = (),
) -> Endpoint:
    """Load the model with a serving and send it one sample (or the one batch size that it takes), then a
    batch of the largest of `sizes`.

    Raises:
        InfeasibleError: out of memory; has the largest of the sizes that fits.
        StepError: the model did not load, or a request failed.
        UnsupportedError: the server does not load on request, and this model is not loaded.
    """
    with device_lock(at.profile, exclusive=False), work("deploy"):
        data = Samples.read(at.site.store.path(samples), configured.dynamic)
        with connect(running.grpc_url, running.channel) as client:

            def infer(size: int) -> None:
                client.infer(configured.model, data.batch(0, size).inputs(), client_timeout=at.timeout_s)

            load_s = _load(client, running, configured, serving)
            start = time.perf_counter()
            try:
                least = data.fixed or 1
                check_fit(infer, (least,))
                first_request_ms = (time.perf_counter() - start) * 1e3
                if larger := [size for size in sizes if size > least]:
                    check_fit(infer, (least, *larger))
            except InferenceServerException as error:
                raise StepError(f"the first requests failed: {error}", log=running.log) from error
    return Endpoint(
        grpc_url=running.grpc_url,
        http_url=running.http_url,
        model=configured.model,
        channel=running.channel,
        shm_prefix=running.shm_prefix,
        server=running.provider,
        server_version=running.version,
        server_log=running.log,
        server_pid=running.pid,
        backend=serving.backend,
        load_s=load_s,
        first_request_ms=first_request_ms,
    )


def _load(client: Any, running: Running, configured: Configured, serving: Serving) -> float | None:
    """Seconds that the load took; None where the server does not load on request."""
    config = configured.static if serving.batching == "static" else configured.dynamic
    if running.models == "fixed":
        check_loaded(client, configured.model, config, log=running.log)
        return None
    files = uploads(configured.repository / configured.model) if running.models == "upload" else None
    start, timeout_s = time.perf_counter(), serving.load_timeout_s
    try:
        load(client, configured.model, config, timeout_s=timeout_s, log=running.log, files=files)
    except StepError as error:
        if not has_ended(str(error)):
            raise
        reason = " ".join(str(error).split())[:300]
        raise InfeasibleError(f"out of memory while loading ({reason})", largest_batch=0) from error
    return time.perf_counter() - start
