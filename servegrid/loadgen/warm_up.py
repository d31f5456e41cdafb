"""Warming a loaded model up before a plan: what a size of batch does once (compiling, tuning, allocating) is
no part of any window."""

from __future__ import annotations

import json

from tritonclient.utils import InferenceServerException

from servegrid.domain.errors import StepError
from servegrid.domain.values import LoadPlan
from servegrid.loadgen.base import Target
from servegrid.servers.connection import connect
from servegrid.servers.samples import Samples, server_config


def warm_up(plan: LoadPlan, target: Target, timeout_s: float) -> None:
    """Send one batch of every size that the server may run: those of the plan, or, where it batches
    dynamically, each that their requests make together, up to the largest.

    Raises:
        StepError: a batch was not answered.
    """
    model = target.endpoint.model
    with connect(target.endpoint.grpc_url, target.endpoint.channel) as client:
        try:
            config = server_config(client, model)
            samples = Samples.read(target.samples, config)
            for size in sizes(plan, config):
                client.infer(model, samples.batch(0, size).inputs(), client_timeout=timeout_s)
        except InferenceServerException as error:
            log = target.endpoint.server_log
            raise StepError(f"the server did not warm up: {error}", log=log) from error


def sizes(plan: LoadPlan, config: str) -> tuple[int, ...]:
    """The batch sizes to warm, for a model config (JSON)."""
    entries = json.loads(config)
    largest = int(entries.get("max_batch_size", 0))
    if "dynamic_batching" not in entries or not largest:
        return plan.batch_sizes
    return tuple(sorted({size for one in plan.batch_sizes for size in range(one, largest + 1, one)}))
