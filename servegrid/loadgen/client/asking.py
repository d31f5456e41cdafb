"""Single requests as the load generator sends them, over each protocol and kind of shared memory, and their
answers."""

from __future__ import annotations

import http.client
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

import grpc
from tritonclient.utils import InferenceServerException

from servegrid.domain.arrays import Arrays
from servegrid.domain.errors import StepError
from servegrid.domain.values import Endpoint, Protocol
from servegrid.loadgen.base import Point, Target
from servegrid.loadgen.client.answers import arrays
from servegrid.loadgen.client.client import MeasurementJob
from servegrid.loadgen.client.codec import CODECS, HEADER_LENGTH
from servegrid.loadgen.client.messages import Request
from servegrid.loadgen.client.regions import placed_requests
from servegrid.loadgen.client.transport import METHOD
from servegrid.servers.connection import connect, connect_channel
from servegrid.servers.samples import Samples, output_sizes, server_config

Call = Callable[[Any], Any]

DISTINCT_SAMPLES = 64
"""Samples by which the room for an output of free length is found."""


class Asker:
    """Asks a loaded model, and waits for each answer."""

    def __init__(self, client: Any, target: Target, timeout_s: float) -> None:
        self._client, self._target, self._timeout_s = client, target, timeout_s
        model = target.endpoint.model
        self._samples = Samples.read(target.samples, server_config(client, model))
        one = self._samples.fixed or 1
        self._room = output_sizes(client, model, self._samples, one, DISTINCT_SAMPLES)

    def ask(self, point: Point, clients: int = 1, rounds: int = 1) -> list[Arrays]:
        """The answers to the first batch of the point's size, sent by so many clients at once, so often."""
        times = 1 if self._samples.fixed else point.batch
        room = {name: size * times for name, size in self._room.items()}
        job, codec = MeasurementJob(point=point, target=self._target), CODECS[point.protocol]
        with (
            placed_requests(self._client, job, self._samples, room, clients, distinct=1) as placed,
            calling(self._target.endpoint, point.protocol, self._timeout_s) as call,
            ThreadPoolExecutor(clients) as pool,
        ):

            def send(requests: list[Request]) -> Arrays:
                (request,) = requests
                answer = call(codec.serialise(codec.message(request)))
                placed_bytes = tuple(placed.read(place) for _, place in request.outputs)
                return self._samples.unflattened(arrays(codec, request, answer, placed_bytes))

            return [found for _ in range(rounds) for found in pool.map(send, placed.requests)]


@contextmanager
def asking(target: Target, timeout_s: float) -> Iterator[Asker]:
    """An asker for as long as the block runs.

    Raises:
        StepError: a request was refused, or not answered in `timeout_s`.
    """
    endpoint = target.endpoint
    try:
        with connect(endpoint.grpc_url, endpoint.channel) as client:
            yield Asker(client, target, timeout_s)
    except (InferenceServerException, grpc.RpcError, ConnectionError, TimeoutError) as error:
        said = error.details() if isinstance(error, grpc.Call) else error
        raise StepError(f"the server did not answer: {said}", log=endpoint.server_log) from error


@contextmanager
def calling(endpoint: Endpoint, protocol: Protocol, timeout_s: float) -> Iterator[Call]:
    """What sends a serialised request and waits for its answer."""
    if protocol == "http":
        yield lambda data: _post(endpoint, data, timeout_s)
        return
    opened, metadata = connect_channel(endpoint.grpc_url, endpoint.channel)
    with opened as channel:
        infer = channel.unary_unary(METHOD)
        yield lambda data: infer(data, timeout=timeout_s, metadata=metadata)


def _post(endpoint: Endpoint, data: Any, timeout_s: float) -> Any:
    body, headers = data
    connection = http.client.HTTPConnection(endpoint.http_url, timeout=timeout_s)
    try:
        connection.request("POST", f"/v2/models/{endpoint.model}/infer", body, headers)
        response = connection.getresponse()
        answer = response.read()
    except http.client.HTTPException as error:
        raise ConnectionError(f"HTTP: {type(error).__name__}: {error}") from error
    finally:
        connection.close()
    if response.status != 200:
        raise ConnectionError(f"HTTP {response.status}: {answer[:500].decode(errors='replace')}")
    return answer, int(response.headers.get(HEADER_LENGTH, len(answer)))
