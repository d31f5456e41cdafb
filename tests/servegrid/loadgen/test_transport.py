"""A request of the client, sent for real over each protocol: what the server answers is what was sent."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tritonclient.grpc import service_pb2 as pb

from servegrid.domain.values import Protocol, SharedMemory
from servegrid.loadgen.base import Point, Target
from servegrid.loadgen.client.client import MeasurementJob
from servegrid.loadgen.client.regions import placed_requests
from servegrid.loadgen.client.schedule import due_times
from servegrid.loadgen.client.transport import connect
from servegrid.servers.samples import Samples, server_config


async def ask(order: MeasurementJob, requests: Any) -> Any:
    async with connect(order.point.protocol, order.target.endpoint) as transport:
        answer = await transport.call(transport.serialise(transport.message(requests)))
        transport.parse(answer)
        return answer


@pytest.mark.parametrize("protocol", ["grpc", "http"])
@pytest.mark.parametrize("shared_memory", ["none", "system"])
def test_tensors_go_there_and_back(
    protocol: Protocol,
    shared_memory: SharedMemory,
    server: Any,
    identity: str,
    samples: Path,
    tmp_path: Path,
) -> None:
    point = Point(
        batch=2, concurrency=2, request_count=1, shared_memory=shared_memory, protocol=protocol, warm_up=False
    )
    target = Target(endpoint=server.endpoint(identity), samples=samples, logs=tmp_path, name="it")
    order = MeasurementJob(point=point, target=target)
    read = Samples.read(samples, server_config(server.client, identity))
    sent = read.batch(3 * 2, 2).arrays["x"]
    with placed_requests(server.client, order, read, {"y": sent.nbytes}, 2) as placed:
        request = placed.requests[1][3]
        answer = asyncio.run(ask(order, request))
        if shared_memory == "system":
            ((_, place),) = request.outputs
            assert place.offset == sent.nbytes  # the second place in flight
            data = Path("/dev/shm", place.region).read_bytes()[place.offset :][: place.size]
        elif protocol == "grpc":
            (data,) = pb.ModelInferResponse.FromString(answer).raw_output_contents
        else:
            body, length = answer
            data = body[length:]
        assert np.array_equal(np.frombuffer(data, np.int64).reshape(2, 64), sent)


def test_a_refusal_over_http_is_an_error_with_the_servers_words(
    server: Any, identity: str, samples: Path, tmp_path: Path
) -> None:
    point = Point(
        batch=9, concurrency=1, request_count=1, shared_memory="none", protocol="http", warm_up=False
    )
    target = Target(endpoint=server.endpoint(identity), samples=samples, logs=tmp_path, name="it")
    order = MeasurementJob(point=point, target=target)
    read = Samples.read(samples, server_config(server.client, identity))
    with (
        placed_requests(server.client, order, read, {}, 1) as placed,
        pytest.raises(ConnectionError, match=r"HTTP 400: .*batch"),
    ):
        asyncio.run(ask(order, placed.requests[0][0]))


@pytest.mark.parametrize("shares", [1, 3])
def test_constant_rate_is_even_however_many_processes_share_it(shares: int) -> None:
    sources = [due_times(50.0, "constant", share, shares) for share in range(shares)]
    times = sorted(next(source) for source in sources for _ in range(60 // shares))
    np.testing.assert_allclose(np.diff(times), 0.02)


@pytest.mark.parametrize("shares", [1, 4])
def test_poisson_rate_has_its_mean_and_its_variance_and_is_repeatable(shares: int) -> None:
    def arrivals() -> Any:
        sources = [due_times(1000.0, "poisson", share, shares) for share in range(shares)]
        return np.sort([next(source) for source in sources for _ in range(20_000 // shares)])

    times = arrivals()
    gaps = np.diff(times[: len(times) * 9 // 10])  # at the end some of the sources have none left
    assert gaps.mean() == pytest.approx(1e-3, rel=0.03)
    assert gaps.std() == pytest.approx(1e-3, rel=0.05)  # of an exponential: its mean
    assert np.array_equal(times, arrivals())
