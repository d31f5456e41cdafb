"""`python -m servegrid.loadgen.client.process JOB.json RESULT.json`: one point, by our own client.

This process only watches: others, forked from it, send and time the requests. There is one of them, and
twice as many for as long as they see answers too late to be trusted and more of them bring more; at a request
rate there is one for each RATE_OF_A_PROCESS. The server's part of a latency comes from the difference of its
statistics over the measured windows.
"""

from __future__ import annotations

import math
import os
import sys
import time
from contextlib import ExitStack
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from servegrid.loadgen.base import (
    MAX_WINDOWS,
    STABLE_WINDOWS,
    WARM_UP_REQUESTS,
    Measurement,
    Point,
    Window,
    counted,
    keeps_up,
    stable,
)
from servegrid.loadgen.client.checking import kept_answers, wrong_answers
from servegrid.loadgen.client.client import VERSION, MeasurementJob
from servegrid.loadgen.client.messages import Request
from servegrid.loadgen.client.regions import DISTINCT_REQUESTS, placed_requests
from servegrid.loadgen.client.worker_pool import WorkerPool
from servegrid.loadgen.lag import idle_s, starves_the_server, too_late
from servegrid.loadgen.latency import COMPONENTS
from servegrid.servers.connection import connect
from servegrid.servers.samples import Samples, output_sizes, server_config

RAMP_S = 0.2
MAX_IN_FLIGHT = 512
"""At a request rate: later requests wait in the client, their latency counted all the same."""
RATE_OF_A_PROCESS = 1000
"""Requests/s that one process is trusted with at a request rate: a quarter of what it can on a slow core."""
BETTER = 1.03
"""What more processes must bring, else they only take the server's cores."""
STATISTICS = {component.statistic: column for column, component in COMPONENTS.items() if component.statistic}
"""Field of Triton's inference statistics -> our column."""


class WindowBoundary(NamedTuple):
    """The edge of a window: when, the server's counters, the CPU time of the sending processes, and the time
    that the host's cores were idle."""

    at: float
    statistics: dict[str, float]
    cpu_s: float
    idle_s: float


def main() -> None:
    order = MeasurementJob.model_validate_json(Path(sys.argv[1]).read_text(encoding="utf-8"))
    places = in_flight(order.point)
    pool = WorkerPool(order, min(len(os.sched_getaffinity(0)), places))
    with ExitStack() as stack:
        endpoint = order.target.endpoint
        client = stack.enter_context(connect(endpoint.grpc_url, endpoint.channel))
        config = server_config(client, endpoint.model)
        samples = Samples.read(order.target.samples, config, order.point.input_data)
        requests, kept = _requests(order, client, samples, places, stack)
        found = Run(order, client, pool, requests, kept).measure()
        if kept:
            wrong = wrong_answers(order.point, order.target, samples, requests[0], pool.answers)
            checked = {"answers_checked": len(pool.answers), "wrong_answers": wrong}
            found = found.model_copy(update=checked)
    Path(sys.argv[2]).write_text(found.model_dump_json(), encoding="utf-8")


def in_flight(point: Point) -> int:
    """How many requests may be in flight: at a request rate, those of a second."""
    if point.request_rate is None:
        assert point.concurrency
        return point.concurrency
    return min(MAX_IN_FLIGHT, max(16, math.ceil(point.request_rate)))


def _requests(
    order: MeasurementJob, client: Any, samples: Samples, places: int, stack: ExitStack
) -> tuple[list[list[Request]], int]:
    """The requests of each place in flight, after plain requests that warm this batch up, if wanted; and how
    many of their answers are kept."""
    endpoint, point = order.target.endpoint, order.point
    first = samples.batch(0, point.batch).inputs()
    for _ in range(WARM_UP_REQUESTS if point.warm_up else 0):
        client.infer(endpoint.model, first)
    outputs = output_sizes(client, endpoint.model, samples, point.batch, DISTINCT_REQUESTS * point.batch)
    placed = stack.enter_context(placed_requests(client, order, samples, outputs, places))
    return placed.requests, kept_answers(point, order.target, sum(outputs.values()))


class Run:
    """The windows of one point, from the first request to the last."""

    def __init__(
        self,
        order: MeasurementJob,
        client: Any,
        pool: WorkerPool,
        requests: list[list[Request]],
        kept_answers: int = 0,
    ) -> None:
        self.point, self.model, self.client = order.point, order.target.endpoint.model, client
        self.pool, self.requests, self.kept_answers = pool, requests, kept_answers
        self.edges: list[WindowBoundary] = []
        self.windows: list[Window] = []

    def measure(self) -> Measurement:
        processes = self._enough_processes()
        while len(self.windows) < MAX_WINDOWS and not stable(self.windows) and not self._overloaded():
            self._window()
        self.pool.stop()
        first, last = self.edges[-1 - counted(self.windows)], self.edges[-1]
        lag_ms, records = self._lag_ms(first, last), self._ended(first, last)
        return summary(self.point, records, first, last, tuple(self.windows), processes, lag_ms)

    def _enough_processes(self) -> int:
        """Begin with as many processes as bring the most: each try is one window; at a request rate, where no
        window is to be lost, there are no tries."""
        if self.point.request_rate is not None:
            processes = min(len(self.pool), math.ceil(self.point.request_rate / RATE_OF_A_PROCESS))
            self._start(processes)
            return processes
        processes = 1
        self._start(processes)
        while 2 * processes <= len(self.pool) and too_late(
            self._lag_ms(self.edges[0], self.edges[-1]), self.windows[-1].avg_ms
        ):
            before = self.windows[-1].throughput
            self.pool.stop()
            self._start(2 * processes)
            if self.windows[-1].throughput < before * BETTER:
                self.pool.stop()
                self._start(processes)
                break
            processes *= 2
        return processes

    def _start(self, processes: int) -> None:
        """Begin anew: a first window, after the requests that all start together and show nothing steady."""
        self.pool.start(self.requests, processes, self.kept_answers)
        self.windows = []
        self._wait(time.perf_counter(), RAMP_S, 2 * (self.point.concurrency or 1), already=0)
        self.edges = [self._edge()]
        self._window()

    def _window(self) -> None:
        start = self.edges[-1].at
        already = int(np.count_nonzero(self.pool.records[:, 0] <= start))
        self._wait(start, self.point.window_s, self.point.request_count, already)
        self.edges.append(self._edge())
        self.windows.append(self._judge(self.edges[-2], self.edges[-1]))

    def _wait(self, start: float, seconds: float, requests: int, already: int) -> None:
        """Wait until a window that began at `start` is long enough and has requests enough."""
        while (now := time.perf_counter()) - start < seconds or self.pool.answered - already < requests:
            self.pool.advance(now)

    def _edge(self) -> WindowBoundary:
        at = time.perf_counter()
        (entry,) = self.client.get_inference_statistics(self.model).model_stats
        stats = entry.inference_stats
        counts = {"count": stats.success.count} | {name: getattr(stats, name).ns for name in STATISTICS}
        self.pool.advance(at)
        return WindowBoundary(at, counts, self.pool.cpu_s, idle_s())

    def _judge(self, first: WindowBoundary, last: WindowBoundary) -> Window:
        latency, seconds = self._ended(first, last)[:, 1], last.at - first.at
        offered = None
        if self.point.request_rate is not None:
            due = sum(first.at < at <= last.at for at in self.pool.due)
            offered = max(due, 1) * self.point.batch / seconds
        return Window(
            throughput=len(latency) * self.point.batch / seconds,
            avg_ms=float(latency.mean()) * 1e3,
            offered=offered,
        )

    def _ended(self, first: WindowBoundary, last: WindowBoundary) -> np.ndarray[Any, Any]:
        """The requests that were answered between two edges."""
        records, end = self.pool.records, self.pool.records[:, 0]
        return records[(end > first.at) & (end <= last.at)]

    def _lag_ms(self, first: WindowBoundary, last: WindowBoundary) -> float:
        """How late the client was on average, in ms."""
        at, lag = self.pool.lags.T
        return float(lag[(at > first.at) & (at <= last.at)].mean()) * 1e3

    def _overloaded(self) -> bool:
        return len(self.windows) >= STABLE_WINDOWS and not keeps_up(self.windows)


def summary(
    point: Point,
    records: np.ndarray[Any, Any],
    first: WindowBoundary,
    last: WindowBoundary,
    windows: tuple[Window, ...],
    processes: int,
    lag_ms: float,
) -> Measurement:
    """What lies between two edges, in the columns of perf_analyzer."""
    _, latency, send, receive = records.T * 1e3
    average = float(latency.mean())
    answered = last.statistics["count"] - first.statistics["count"]
    server = {
        column: (last.statistics[name] - first.statistics[name]) / answered / 1e6
        for name, column in STATISTICS.items()
    }
    network = average - float(send.mean()) - float(receive.mean()) - math.fsum(server.values())
    seconds = last.at - first.at
    cores, idle = (last.cpu_s - first.cpu_s) / seconds, (last.idle_s - first.idle_s) / seconds
    p50, p90, p95, p99 = (float(p) for p in np.percentile(latency, (50, 90, 95, 99)))
    return Measurement(
        throughput=len(records) * point.batch / seconds,
        client_send_ms=float(send.mean()),
        network_server_send_recv_ms=network,
        **server,
        client_recv_ms=float(receive.mean()),
        p50_ms=p50,
        p90_ms=p90,
        p95_ms=p95,
        p99_ms=p99,
        avg_ms=average,
        request_count=len(records),
        windows=windows,
        generator="client",
        generator_version=VERSION,
        generator_processes=processes,
        generator_cores=cores,
        generator_lag_ms=lag_ms,
        client_limited=too_late(lag_ms, average) or starves_the_server(idle, cores),
    )


if __name__ == "__main__":
    main()
