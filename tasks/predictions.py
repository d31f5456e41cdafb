"""Asking a served model for its answers to real samples, through the dynamic batcher."""

from __future__ import annotations

import itertools
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import tritonclient.grpc as triton
from tritonclient.utils import InferenceServerException

from tasks.core.errors import StepError
from tasks.core.values import Endpoint
from tasks.loadgen.requests import Arrays, Samples, server_config

CLIENTS = 8
TIMEOUT_S = 120.0
INVARIANCE_SAMPLES = 8


def predict(endpoint: Endpoint, samples: Path, max_batch: int) -> Arrays:
    """Outputs for every sample, in order, from requests of mixed sizes that CLIENTS threads send at once.

    Raises:
        StepError: the server refused a request or is gone.
    """
    with triton.InferenceServerClient(endpoint.grpc_url) as client:
        data = Samples.read(samples, server_config(client, endpoint.model))
        sizes = itertools.cycle(s for s in (1, 2, 3, 4) if s <= max_batch)
        requests, start = [], 0
        while start < len(data):
            size = min(next(sizes), len(data) - start)
            requests.append((start, size))
            start += size

        def ask(request: tuple[int, int]) -> Arrays:
            return _infer(client, endpoint, data.batch(*request))

        with ThreadPoolExecutor(CLIENTS) as pool:
            answers = list(pool.map(ask, requests))
    return {name: np.concatenate([answer[name] for answer in answers]) for name in answers[0]}


def invariance(endpoint: Endpoint, samples: Path, max_batch: int) -> float:
    """Largest change of any output value of a sample with what shares its batch.

    Each sample is asked alone, in a full batch, and in a full batch of other neighbours.
    """
    with triton.InferenceServerClient(endpoint.grpc_url) as client:
        data = Samples.read(samples, server_config(client, endpoint.model))
        largest = 0.0
        for index in range(min(INVARIANCE_SAMPLES, len(data))):
            alone = _infer(client, endpoint, data.batch(index, 1))
            for start in (index, len(data) - max_batch + 1 + index):
                place = (index - start) % len(data)
                beside = _infer(client, endpoint, data.batch(start, max_batch))
                for name, want in alone.items():
                    change = beside[name][place].astype(np.float64) - want[0].astype(np.float64)
                    moved = np.nan_to_num(np.abs(change), nan=np.inf)
                    largest = max(largest, float(moved.max(initial=0.0)))
    return largest


def _infer(client: triton.InferenceServerClient, endpoint: Endpoint, batch: Samples) -> Arrays:
    try:
        result = client.infer(endpoint.model, batch.inputs(), client_timeout=TIMEOUT_S)
    except InferenceServerException as error:
        raise StepError(f"the server did not answer: {error}", log=endpoint.server_log) from error
    return {output.name: result.as_numpy(output.name) for output in result.get_response().outputs}
