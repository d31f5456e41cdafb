"""Asking a served model for its answers to real samples, through the dynamic batcher."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from tritonclient.utils import InferenceServerException

from servegrid.domain.arrays import Arrays, concatenate_answers
from servegrid.domain.errors import StepError, WrongAnswerError
from servegrid.domain.values import Endpoint
from servegrid.servers.connection import TIMEOUT_S, connect
from servegrid.servers.samples import Samples, server_config

CLIENTS = 8
SMALL_REQUESTS_UP_TO = 16384
"""Samples that are sent in requests of 1 to 4. Where there are more, all requests but those of 1 grow in
step, as far as the largest batch allows: a hundred thousand samples in small requests take many minutes."""
INVARIANCE_SAMPLES = 8


def predict(
    endpoint: Endpoint, samples: Path, max_batch: int, timeout_s: float, clients: int = CLIENTS
) -> Arrays:
    """Outputs for every sample, in order, from requests of mixed sizes that `clients` threads send at once.

    Raises:
        StepError: the server refused a request, did not answer one in `timeout_s`, or is gone.
    """
    with connect(endpoint.grpc_url, endpoint.channel) as client:
        data = Samples.read(samples, server_config(client, endpoint.model))
        times = -(-len(data) // SMALL_REQUESTS_UP_TO)
        small = sorted({1, *(min(count * times, max_batch) for count in (2, 3, 4))})
        sizes = itertools.cycle([data.fixed] if data.fixed else small)
        requests, start = [], 0
        while start < len(data):
            size = min(next(sizes), len(data) - start)
            requests.append((start, size))
            start += size

        def ask(request: tuple[int, int]) -> Arrays:
            return infer(client, endpoint, data.batch(*request), timeout_s)

        with ThreadPoolExecutor(clients) as pool:
            answers = list(pool.map(ask, requests))
    return joined(answers)


def neighbours(endpoint: Endpoint, samples: Path, max_batch: int, timeout_s: float) -> tuple[Arrays, Arrays]:
    """Outputs of some samples alone, and of the same samples in two full batches each, with other neighbours
    and at other places. Both have the same rows in the same order."""
    alone: list[Arrays] = []
    batched: list[Arrays] = []
    with connect(endpoint.grpc_url, endpoint.channel) as client:
        data = Samples.read(samples, server_config(client, endpoint.model))
        most = data.fixed or max_batch
        for index in range(min(INVARIANCE_SAMPLES, len(data))):
            answer = infer(client, endpoint, data.batch(index, data.fixed or 1), timeout_s)
            answer = {name: array[:1] for name, array in answer.items()}
            for start in (index, len(data) - most + 1 + index):
                place = (index - start) % len(data)
                full = infer(client, endpoint, data.batch(start, most), timeout_s)
                alone.append(answer)
                batched.append({name: array[place : place + 1] for name, array in full.items()})
    return joined(alone), joined(batched)


def executed(endpoint: Endpoint) -> Counter[int]:
    """Batch size -> how often the server has executed it since the model was loaded."""
    with connect(endpoint.grpc_url, endpoint.channel) as client:
        (entry,) = client.get_inference_statistics(endpoint.model, client_timeout=TIMEOUT_S).model_stats
    return Counter({batch.batch_size: batch.compute_infer.count for batch in entry.batch_stats})


def joined(answers: Sequence[Arrays]) -> Arrays:
    """Answers put together in order."""
    return {name: concatenate_answers([answer[name] for answer in answers]) for name in answers[0]}


def infer(client: Any, endpoint: Endpoint, batch: Samples, timeout_s: float) -> Arrays:
    """One request.

    Raises:
        StepError: the server refused it, did not answer in `timeout_s` or is gone, or an output is of
            another type than it should be.
        WrongAnswerError: an output has not a row for each sample.
    """
    try:
        result = client.infer(endpoint.model, batch.inputs(), client_timeout=timeout_s)
    except InferenceServerException as error:
        raise StepError(f"the server did not answer: {error}", log=endpoint.server_log) from error
    outputs = result.get_response().outputs
    for output in outputs:
        wanted = batch.output_dtypes.get(output.name, output.datatype)
        if output.datatype != wanted:
            said = f"the answer's {output.name} is {output.datatype}; the model's config says {wanted}"
            raise StepError(said, log=endpoint.server_log)
    answer = {output.name: result.as_numpy(output.name) for output in outputs}
    for name, array in answer.items():
        if len(array) != len(batch):
            raise WrongAnswerError(
                f"the answer's {name} has {len(array)} rows for a batch of {len(batch)}",
                log=endpoint.server_log,
            )
    return batch.unflattened(answer)
