"""`python -m servegrid.regression.interleaved_process JOB.json RESULT.json`: runs of two served models.

The loop is closed: each of `concurrency` workers keeps one request in flight, over async gRPC. Requests are
serialised before, so that the client adds little, and the same to both candidates; they contain the tensors.
The first fifth of a run is discarded. A thread samples the lag of the event loop, as in the client that
measures points.
"""

from __future__ import annotations

import asyncio
import statistics
import sys
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import AsyncExitStack, contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from servegrid.loadgen.base import WARM_UP_REQUESTS
from servegrid.loadgen.client.regions import inline_requests
from servegrid.loadgen.client.schedule import due_times
from servegrid.loadgen.client.transport import connect as connect_transport
from servegrid.loadgen.client.worker import PROBES, pacing
from servegrid.regression.interleaved import CandidateEndpoint, InterleavedJob, InterleavedRuns, Run
from servegrid.servers.connection import connect
from servegrid.servers.samples import Samples, server_config

SETTLE = 0.2
LEAST_REQUESTS = 10

Lag = tuple[float, float]
"""Time of a sample, and the lag of the event loop then, in seconds."""
Infer = Callable[[Any], Awaitable[Any]]


class CompletedRequest(NamedTuple):
    """An answered request: its end on the clock of time.perf_counter, and its latency, in seconds."""

    end: float
    latency: float


class CandidateClient:
    """The client of one candidate: its requests as bytes, and the call that sends one."""

    def __init__(self, infer: Infer, messages: list[Any]) -> None:
        self.infer, self.messages = infer, messages

    async def run(self, job: InterleavedJob, seconds: float, lags: list[Lag]) -> Run:
        """Keep `concurrency` requests in flight for `seconds`; `lags` grow meanwhile."""
        records: list[CompletedRequest] = []
        start = time.perf_counter()

        async def worker(number: int) -> None:
            index = number
            while (begin := time.perf_counter()) < start + seconds:
                await self.infer(self.messages[index % len(self.messages)])
                records.append(CompletedRequest((end := time.perf_counter()), end - begin))
                index += 1

        await asyncio.gather(*map(worker, range(job.concurrency)))
        settled = start + SETTLE * seconds
        counted = [record for record in records if record.end >= settled]
        duration = max(record.end for record in counted) - settled
        seen = [lag for at, lag in lags if at >= settled]
        return Run(
            throughput=len(counted) * job.batch / duration,
            p50_ms=statistics.median(record.latency for record in counted) * 1e3,
            lag_ms=statistics.mean(seen) * 1e3 if seen else None,
        )


def main() -> None:
    job = InterleavedJob.model_validate_json(Path(sys.argv[1]).read_text(encoding="utf-8"))
    runs = asyncio.run(_run_interleaved(job))
    Path(sys.argv[2]).write_text(runs.model_dump_json(), encoding="utf-8")


async def _run_interleaved(job: InterleavedJob) -> InterleavedRuns:
    async with AsyncExitStack() as stack:
        clients = [await _client(candidate, job.batch, stack) for candidate in (job.a, job.b)]
        slowest = 0.0
        for client in clients:
            for _ in range(WARM_UP_REQUESTS):
                begin = time.perf_counter()
                await client.infer(client.messages[0])
                last = time.perf_counter() - begin
            slowest = max(slowest, last)
        seconds = max(job.run_s, LEAST_REQUESTS * slowest)
        found: list[list[Run]] = [[], []]
        with watching() as lags:
            for pair in range(job.pairs):
                for candidate in (0, 1) if pair % 2 else (1, 0):
                    found[candidate].append(await clients[candidate].run(job, seconds, lags))
    return InterleavedRuns(a=tuple(found[0]), b=tuple(found[1]))


@contextmanager
def watching() -> Iterator[list[Lag]]:
    """Sample the lag of this event loop while the block runs."""
    lags: list[Lag] = []

    def probe(due: float) -> None:
        now = time.perf_counter()
        lags.append((now, now - due))

    with pacing(due_times(PROBES, "poisson"), time.perf_counter(), probe):
        yield lags


async def _client(candidate: CandidateEndpoint, batch: int, stack: AsyncExitStack) -> CandidateClient:
    endpoint = candidate.endpoint
    with connect(endpoint.grpc_url, endpoint.channel) as client:
        samples = Samples.read(candidate.samples, server_config(client, endpoint.model))
    transport = await stack.enter_async_context(connect_transport("grpc", endpoint))
    requests = inline_requests(endpoint.model, samples, batch)
    return CandidateClient(transport.call, [transport.serialise(transport.message(r)) for r in requests])


if __name__ == "__main__":
    main()
