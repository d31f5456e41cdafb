"""The client's sending processes, as their parent sees them."""

from __future__ import annotations

import math
import time
from multiprocessing import get_context
from multiprocessing.connection import Connection, wait
from typing import Any

import numpy as np

from servegrid.loadgen.client.answers import Answer
from servegrid.loadgen.client.client import MeasurementJob
from servegrid.loadgen.client.messages import Request
from servegrid.loadgen.client.worker import Assignment, Report, RequestTiming, serve

START_S = 0.05


class WorkerPool:
    """Processes that load together. They are forked at once: no process can be after its first gRPC call."""

    def __init__(self, order: MeasurementJob, size: int) -> None:
        context = get_context("fork")
        self._pipes: list[Connection] = []
        for _ in range(size):
            ours, theirs = context.Pipe()
            context.Process(target=serve, args=(theirs, order), daemon=True).start()
            theirs.close()
            self._pipes.append(ours)
        self._active: list[Connection] = []

    def __len__(self) -> int:
        return len(self._pipes)

    def start(self, requests: list[list[Request]], shares: int, kept_answers: int = 0) -> None:
        """Have the first `shares` processes load, each with its share of the places in flight and of the
        answers to keep."""
        self._active = self._pipes[:shares]
        self._last: dict[Connection, Report] = {}
        self._records: list[np.ndarray[Any, Any]] = []
        self._lags: list[np.ndarray[Any, Any]] = []
        self.due: list[float] = []
        begin = time.perf_counter() + START_S
        for number, pipe in enumerate(self._active):
            kept = math.ceil(kept_answers / shares)
            pipe.send(Assignment(requests[number::shares], number, shares, begin, kept))

    def stop(self) -> None:
        """Have them end what is in flight, and wait until they have."""
        for pipe in self._active:
            pipe.send(None)
        while not all(pipe in self._last and self._last[pipe].done for pipe in self._active):
            self._receive()

    def advance(self, until: float) -> None:
        """Take reports in until all that was answered by then is known."""
        while not all(pipe in self._last and self._last[pipe].now >= until for pipe in self._active):
            self._receive()

    @property
    def records(self) -> np.ndarray[Any, Any]:
        """Every answered request since the start, a `RequestTiming` a row."""
        return np.concatenate(self._records or [np.empty((0, len(RequestTiming._fields)))])

    @property
    def answered(self) -> int:
        return sum(len(records) for records in self._records)

    @property
    def lags(self) -> np.ndarray[Any, Any]:
        """How late processes were, and when: see `Worker._probe`."""
        return np.concatenate(self._lags or [np.empty((0, 2))])

    @property
    def answers(self) -> list[tuple[int, Answer]]:
        """The answers that were kept, once all is stopped, each with the number of its process."""
        return [(number, one) for number, pipe in enumerate(self._active) for one in self._last[pipe].answers]

    @property
    def cpu_s(self) -> float:
        """CPU time of the processes that load."""
        return sum(self._last[pipe].cpu_s for pipe in self._active)

    def _receive(self) -> None:
        """Take one report of each process that has one.

        Raises:
            RuntimeError: a process could not send, or is gone.
        """
        for pipe in wait(self._active):
            assert isinstance(pipe, Connection)
            try:
                report = pipe.recv()
            except EOFError:
                raise RuntimeError("a process of the load generator is gone") from None
            if isinstance(report, str):
                raise RuntimeError(report)
            self._last[pipe] = report
            self._records.append(report.records)
            self._lags.append(report.lags)
            self.due += report.due
