"""`python -m tasks.loadgen.client_process ORDER.json RESULT.json`: one point, closed loop, async gRPC.

Each of `concurrency` workers keeps one request in flight. Requests are serialised and answers parsed
by hand around a raw call, so that both can be timed; the server's part comes from the difference
of its statistics over the measured windows.
"""

from __future__ import annotations

import asyncio
import math
import sys
import time
from collections.abc import Callable
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from tritonclient.grpc import service_pb2 as pb

from tasks.loadgen.base import MAX_WINDOWS, STABLE_WINDOWS, WINDOW_S, Measurement, Window, stable
from tasks.loadgen.client import VERSION, Order
from tasks.loadgen.regions import DISTINCT_REQUESTS, Messages, shared_messages
from tasks.loadgen.requests import Samples, output_sizes, server_config
from tasks.servers.connection import connect, connect_async

WARM_UP_REQUESTS = 5
SERVER_PARTS = ("queue", "compute_input", "compute_infer", "compute_output")


class Record(NamedTuple):
    """One answered request; seconds, `end` on the clock of time.perf_counter."""

    end: float
    latency: float
    send: float
    receive: float


def main() -> None:
    order = Order.model_validate_json(Path(sys.argv[1]).read_text(encoding="utf-8"))
    with ExitStack() as stack:
        endpoint = order.target.endpoint
        client = stack.enter_context(connect(endpoint.grpc_url, endpoint.channel))
        messages = _messages(order, client, stack)
        found = asyncio.run(_measure(order, messages))
    Path(sys.argv[2]).write_text(found.model_dump_json(), encoding="utf-8")


def _messages(order: Order, client: Any, stack: ExitStack) -> Messages:
    """The request messages of each worker, after plain requests that warm this batch up, if wanted."""
    endpoint, point = order.target.endpoint, order.point
    samples = Samples.read(order.target.samples, server_config(client, endpoint.model))
    first = samples.batch(0, point.batch).inputs()
    for _ in range(WARM_UP_REQUESTS if point.warm_up else 0):
        client.infer(endpoint.model, first)
    distinct = DISTINCT_REQUESTS * point.batch
    outputs = output_sizes(client, endpoint.model, samples, point.batch, distinct)
    return stack.enter_context(shared_messages(client, order, samples, outputs))


async def _measure(order: Order, messages: Messages) -> Measurement:
    point, endpoint = order.point, order.target.endpoint
    records: list[Record] = []
    stop = asyncio.Event()
    bare, metadata = connect_async(endpoint.grpc_url, endpoint.channel)
    async with bare as channel:
        infer = partial(channel.unary_unary("/inference.GRPCInferenceService/ModelInfer"), metadata=metadata)
        counters = channel.unary_unary(
            "/inference.GRPCInferenceService/ModelStatistics",
            request_serializer=pb.ModelStatisticsRequest.SerializeToString,
            response_deserializer=pb.ModelStatisticsResponse.FromString,
        )
        statistics = partial(counters, metadata=metadata)
        async with asyncio.TaskGroup() as group:
            for worker in messages:
                group.create_task(_keep_one_in_flight(infer, worker, records, stop))
            # The first requests of all workers start together; what they show is not steady.
            await _until(records, time.perf_counter(), seconds=0.2, requests=2 * point.concurrency)
            windows: list[Window] = []
            marks = [(time.perf_counter(), await _statistics(statistics, endpoint.model))]
            while len(windows) < MAX_WINDOWS and not stable(windows):
                await _until(records, marks[-1][0], seconds=WINDOW_S, requests=point.request_count)
                marks.append((time.perf_counter(), await _statistics(statistics, endpoint.model)))
                windows.append(_window(records, marks[-2][0], marks[-1][0], point.batch))
            stop.set()
    first, last = marks[-1 - STABLE_WINDOWS], marks[-1]
    used = [r for r in records if first[0] < r.end <= last[0]]
    seconds = last[0] - first[0]
    return _summary(order, used, seconds, first[1], last[1], tuple(windows))


async def _keep_one_in_flight(
    infer: Callable[[bytes], Any], messages: list[Any], records: list[Record], stop: asyncio.Event
) -> None:
    turn = 0
    while not stop.is_set():
        message = messages[turn % len(messages)]
        turn += 1
        start = time.perf_counter()
        data = message.SerializeToString()
        sent = time.perf_counter()
        answer = await infer(data)
        arrived = time.perf_counter()
        pb.ModelInferResponse.FromString(answer)
        end = time.perf_counter()
        records.append(Record(end, end - start, sent - start, end - arrived))


async def _until(records: list[Record], start: float, *, seconds: float, requests: int) -> None:
    """Wait until a window that began at `start` is long enough and has requests enough."""
    already = sum(1 for record in records if record.end <= start)
    while time.perf_counter() - start < seconds or len(records) - already < requests:
        await asyncio.sleep(0.02)


async def _statistics(call: Callable[[Any], Any], model: str) -> dict[str, float]:
    """The server's counters: successful requests, and nanoseconds of each part."""
    (entry,) = (await call(pb.ModelStatisticsRequest(name=model))).model_stats
    stats = entry.inference_stats
    return {"count": stats.success.count} | {part: getattr(stats, part).ns for part in SERVER_PARTS}


def _window(records: list[Record], start: float, end: float, batch: int) -> Window:
    latencies = [r.latency for r in records if start < r.end <= end]
    return Window(throughput=len(latencies) * batch / (end - start), avg_ms=float(np.mean(latencies)) * 1e3)


def _summary(
    order: Order,
    records: list[Record],
    seconds: float,
    before: dict[str, float],
    after: dict[str, float],
    windows: tuple[Window, ...],
) -> Measurement:
    latency = np.array([r.latency for r in records]) * 1e3
    average = float(latency.mean())
    send = float(np.mean([r.send for r in records])) * 1e3
    receive = float(np.mean([r.receive for r in records])) * 1e3
    answered = after["count"] - before["count"]
    server = {part: (after[part] - before[part]) / answered / 1e6 for part in SERVER_PARTS}
    network = average - send - receive - math.fsum(server.values())
    p50, p90, p95, p99 = (float(p) for p in np.percentile(latency, (50, 90, 95, 99)))
    return Measurement(
        throughput=len(records) * order.point.batch / seconds,
        client_send_ms=send,
        network_server_send_recv_ms=network,
        server_queue_ms=server["queue"],
        server_compute_input_ms=server["compute_input"],
        server_compute_infer_ms=server["compute_infer"],
        server_compute_output_ms=server["compute_output"],
        client_recv_ms=receive,
        p50_ms=p50,
        p90_ms=p90,
        p95_ms=p95,
        p99_ms=p99,
        avg_ms=average,
        request_count=len(records),
        windows=windows,
        generator="client",
        generator_version=VERSION,
    )


if __name__ == "__main__":
    main()
