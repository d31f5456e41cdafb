"""Warms a loaded model up before a plan, so that no window holds what a batch size does once (compiling,
tuning, allocating)."""

from __future__ import annotations

import json

from tritonclient.utils import InferenceServerException

from servegrid.domain.errors import StepError
from servegrid.domain.values import LoadPlan
from servegrid.loadgen.base import Target
from servegrid.servers.connection import connect
from servegrid.servers.liveness import naming_a_lost_server
from servegrid.servers.samples import Samples, server_config


def warm_up(plan: LoadPlan, target: Target, timeout_s: float) -> None:
    """Send one batch of every size that the server may run: the plan's sizes or, with dynamic batching, every
    sum of their requests up to the largest.

    Raises:
        StepError: a batch was not answered, or the server is gone.
    """
    endpoint = target.endpoint
    with naming_a_lost_server(endpoint), connect(endpoint.grpc_url, endpoint.channel) as client:
        try:
            config = server_config(client, endpoint.model)
            samples = Samples.read(target.samples, config, plan.input_data)
            for size in sizes(plan, config):
                client.infer(endpoint.model, samples.batch(0, size).inputs(), client_timeout=timeout_s)
        except InferenceServerException as error:
            raise StepError(f"the server did not warm up: {error}", log=endpoint.server_log) from error


def sizes(plan: LoadPlan, config: str) -> tuple[int, ...]:
    """The batch sizes to warm, for a model config (JSON)."""
    entries = json.loads(config)
    largest = int(entries.get("max_batch_size", 0))
    if "dynamic_batching" not in entries or not largest:
        return plan.batch_sizes
    return tuple(sorted({size for one in plan.batch_sizes for size in range(one, largest + 1, one)}))
