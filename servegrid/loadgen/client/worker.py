"""A process of the client that sends: one event loop, closed loop or by a schedule.

It is forked before its parent touches gRPC. It waits for an `Assignment`, sends requests until its parent
stops it, and reports every FLUSH_S which requests were answered. Times are those of `time.perf_counter`, one
clock for all processes of a host.
"""

from __future__ import annotations

import asyncio
import os
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from multiprocessing.connection import Connection
from typing import Any, NamedTuple

import numpy as np

from servegrid.loadgen.base import Point
from servegrid.loadgen.client.answers import Answer, Reservoir, SystemMemory
from servegrid.loadgen.client.client import MeasurementJob
from servegrid.loadgen.client.messages import Place, Request
from servegrid.loadgen.client.schedule import due_times
from servegrid.loadgen.client.transport import Transport, connect

FLUSH_S = 0.05
PROBES = 100.0
"""A second, in each process."""


class Assignment(NamedTuple):
    """What one of `shares` processes does: the requests of its places in flight, when a rate starts, and how
    many answers it keeps at most."""

    requests: list[list[Request]]
    number: int
    shares: int
    begin: float
    kept_answers: int = 0


class RequestTiming(NamedTuple):
    """One answered request, in seconds: when it ended, its latency, and of that the client's own parts, until
    the request left and since the answer came."""

    end: float
    latency: float
    send: float
    receive: float


class Report(NamedTuple):
    """What a process did up to `now`, in seconds.

    Since its last report: answered requests (a `RequestTiming` a row), due times of requests, samples of the
    event loop's lag (time and lag a row). Since its start: its CPU time. At its end: the kept answers.
    """

    now: float
    records: np.ndarray[Any, Any]
    due: list[float]
    lags: np.ndarray[Any, Any]
    cpu_s: float
    done: bool
    answers: tuple[Answer, ...] = ()


class Message(NamedTuple):
    """One of the distinct requests, in the protocol's form, and where its outputs lie in shared memory."""

    turn: int
    content: Any
    outputs: tuple[tuple[str, Place], ...]


class Worker:
    """The state of one assignment while it runs."""

    def __init__(self, point: Point, assignment: Assignment, transport: Transport) -> None:
        self.point, self.assignment, self.transport = point, assignment, transport
        self.records: list[RequestTiming] = []
        self.due: list[float] = []
        self.lags: list[tuple[float, float]] = []
        self.stop = asyncio.Event()
        self.arrivals: asyncio.Queue[float | None] = asyncio.Queue()
        self.answers = Reservoir(assignment.kept_answers, seed=assignment.number)
        self.memory = SystemMemory()

    async def run(self) -> None:
        """Load until `stop` is set; then wait for what is in flight."""
        places = [
            [Message(turn, self.transport.message(r), r.outputs) for turn, r in enumerate(requests)]
            for requests in self.assignment.requests
        ]
        point, assignment = self.point, self.assignment
        with pacing(due_times(PROBES, "poisson", assignment.number), assignment.begin, self._probe):
            if point.request_rate is None:
                await _all(self._closed_loop(messages) for messages in places)
                return
            assert point.distribution
            times = due_times(point.request_rate, point.distribution, assignment.number, assignment.shares)
            with pacing(times, assignment.begin, self._arrive):
                arriving = (self._on_arrival(messages) for messages in places)
                await _all((*arriving, self._end_arrivals(len(places))))

    def _probe(self, due: float) -> None:
        """How late this process is to see what has happened: a thread wakes up at a given time and tells the
        event loop, as gRPC's thread does when an answer has come. The times are random: they see what is
        there on average (R. W. Wolff, Poisson arrivals see time averages, Operations Research 30, 1982)."""
        now = time.perf_counter()
        self.lags.append((now, now - due))

    async def _closed_loop(self, messages: list[Message]) -> None:
        turn = 0
        while not self.stop.is_set():
            await self._send(messages[turn % len(messages)], time.perf_counter())
            turn += 1

    async def _on_arrival(self, messages: list[Message]) -> None:
        turn = 0
        while (due := await self.arrivals.get()) is not None:
            await self._send(messages[turn % len(messages)], due)
            turn += 1

    async def _end_arrivals(self, places: int) -> None:
        """Once stopped, let go of what is due and not sent, and of every place in flight."""
        await self.stop.wait()
        while not self.arrivals.empty():
            self.arrivals.get_nowait()
        for _ in range(places):
            self.arrivals.put_nowait(None)

    def _arrive(self, due: float) -> None:
        if not self.stop.is_set():
            self.due.append(due)
            self.arrivals.put_nowait(due)

    async def _send(self, message: Message, start: float) -> None:
        data = self.transport.serialise(message.content)
        sent = time.perf_counter()
        answer = await self.transport.call(data)
        arrived = time.perf_counter()
        self.transport.parse(answer)
        end = time.perf_counter()
        self.records.append(RequestTiming(end, end - start, sent - start, end - arrived))
        if self.answers.wants():
            placed = tuple(self.memory.read(place) for _, place in message.outputs)
            self.answers.keep(Answer(self.answers.count, end, message.turn, answer, placed))


@contextmanager
def pacing(times: Iterator[float], begin: float, announce: Callable[[float], None]) -> Iterator[None]:
    """A thread calls `announce` in the event loop at each of the times; the loop's timers have 1 ms only."""
    loop, halt = asyncio.get_running_loop(), threading.Event()

    def pace() -> None:
        for time_ in times:
            if halt.wait(max(0.0, begin + time_ - time.perf_counter())):
                return
            loop.call_soon_threadsafe(announce, begin + time_)

    thread = threading.Thread(target=pace)
    thread.start()
    try:
        yield
    finally:
        halt.set()
        thread.join()


def serve(connection: Connection, order: MeasurementJob) -> None:
    """The process's life: one assignment after the other, until the connection ends."""
    with asyncio.Runner() as runner:
        for assignment in _shares(connection):
            try:
                runner.run(_load(connection, order, assignment))
            except Exception as error:
                cause = error.exceptions[0] if isinstance(error, ExceptionGroup) else error
                connection.send(f"{type(cause).__name__}: {cause}")
                break
    os._exit(0)  # gRPC's threads, if a call hangs, must not keep us


def _shares(connection: Connection) -> Iterator[Assignment]:
    try:
        while True:
            yield connection.recv()
    except EOFError:
        return


async def _load(connection: Connection, order: MeasurementJob, assignment: Assignment) -> None:
    loop = asyncio.get_running_loop()
    async with connect(order.point.protocol, order.target.endpoint) as transport:
        worker = Worker(order.point, assignment, transport)

        def stop() -> None:  # the parent sent something, or is gone
            loop.remove_reader(connection.fileno())
            worker.stop.set()

        loop.add_reader(connection.fileno(), stop)
        reporting = loop.create_task(_report_regularly(connection, worker))
        try:
            await worker.run()
        finally:
            reporting.cancel()
            worker.memory.close()
    connection.recv()  # the word that ended it
    connection.send(_report(worker, done=True))


async def _report_regularly(connection: Connection, worker: Worker) -> None:
    while True:
        await asyncio.sleep(FLUSH_S)
        connection.send(_report(worker, done=False))


def _report(worker: Worker, *, done: bool) -> Report:
    records = np.array(worker.records, dtype=float).reshape(-1, len(RequestTiming._fields))
    lags = np.array(worker.lags, dtype=float).reshape(-1, 2)
    answers = tuple(worker.answers.kept) if done else ()
    report = Report(time.perf_counter(), records, worker.due, lags, time.process_time(), done, answers)
    worker.records, worker.due, worker.lags = [], [], []
    return report


async def _all(coroutines: Any) -> None:
    async with asyncio.TaskGroup() as group:
        for coroutine in coroutines:
            group.create_task(coroutine)
