"""`python -m servegrid.regression.interleaved_process ORDER.json RESULT.json`: turns of two served models.

The loop is closed: each of `concurrency` workers keeps one request in flight, over async gRPC.
Requests are serialised before, so that the client adds as little as it can, and the same to both. The
tensors are in the messages. The beginning of a turn, a fifth of it, does not count. A thread probes all the
while how late the event loop is, as in the client that measures points.
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
from servegrid.regression.interleaved import Opponent, Order, Turn, Turns
from servegrid.servers.connection import connect
from servegrid.servers.samples import Samples, server_config

SETTLE = 0.2
LEAST_REQUESTS = 10

Lag = tuple[float, float]
"""When it was looked, and how late the event loop was then, in seconds."""
Infer = Callable[[Any], Awaitable[Any]]


class Record(NamedTuple):
    """An answered request, in seconds on the clock of time.perf_counter."""

    end: float
    latency: float


class Player:
    """One side: its requests as bytes, and the call that sends one."""

    def __init__(self, infer: Infer, messages: list[Any]) -> None:
        self.infer, self.messages = infer, messages

    async def turn(self, order: Order, seconds: float, lags: list[Lag]) -> Turn:
        """Keep `concurrency` requests in flight for so long; `lags` grow meanwhile."""
        records: list[Record] = []
        start = time.perf_counter()

        async def worker(number: int) -> None:
            turn = number
            while (begin := time.perf_counter()) < start + seconds:
                await self.infer(self.messages[turn % len(self.messages)])
                records.append(Record((end := time.perf_counter()), end - begin))
                turn += 1

        await asyncio.gather(*map(worker, range(order.concurrency)))
        settled = start + SETTLE * seconds
        counted = [record for record in records if record.end >= settled]
        duration = max(record.end for record in counted) - settled
        seen = [lag for at, lag in lags if at >= settled]
        return Turn(
            throughput=len(counted) * order.batch / duration,
            p50_ms=statistics.median(record.latency for record in counted) * 1e3,
            lag_ms=statistics.mean(seen) * 1e3 if seen else None,
        )


def main() -> None:
    order = Order.model_validate_json(Path(sys.argv[1]).read_text(encoding="utf-8"))
    turns = asyncio.run(_play(order))
    Path(sys.argv[2]).write_text(turns.model_dump_json(), encoding="utf-8")


async def _play(order: Order) -> Turns:
    async with AsyncExitStack() as stack:
        players = [await _player(side, order.batch, stack) for side in (order.a, order.b)]
        slowest = 0.0
        for player in players:
            for _ in range(WARM_UP_REQUESTS):
                begin = time.perf_counter()
                await player.infer(player.messages[0])
                last = time.perf_counter() - begin
            slowest = max(slowest, last)
        seconds = max(order.turn_s, LEAST_REQUESTS * slowest)
        found: list[list[Turn]] = [[], []]
        with watching() as lags:
            for pair in range(order.pairs):
                for side in (0, 1) if pair % 2 else (1, 0):
                    found[side].append(await players[side].turn(order, seconds, lags))
    return Turns(a=tuple(found[0]), b=tuple(found[1]))


@contextmanager
def watching() -> Iterator[list[Lag]]:
    """How late this event loop is, for as long as the block runs."""
    lags: list[Lag] = []

    def probe(due: float) -> None:
        now = time.perf_counter()
        lags.append((now, now - due))

    with pacing(due_times(PROBES, "poisson"), time.perf_counter(), probe):
        yield lags


async def _player(side: Opponent, batch: int, stack: AsyncExitStack) -> Player:
    endpoint = side.endpoint
    with connect(endpoint.grpc_url, endpoint.channel) as client:
        samples = Samples.read(side.samples, server_config(client, endpoint.model))
    transport = await stack.enter_async_context(connect_transport("grpc", endpoint))
    requests = inline_requests(endpoint.model, samples, batch)
    return Player(transport.call, [transport.serialise(transport.message(r)) for r in requests])


if __name__ == "__main__":
    main()
