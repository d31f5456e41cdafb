"""What every load generator measures, in one meaning."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from pathlib import Path

from servegrid.domain.values import Distribution, Endpoint, InputData, Protocol, SharedMemory, Value
from servegrid.loadgen.latency import LatencyComponents
from servegrid.loadgen.reference import Reference

STABLE_WINDOWS = 3
STABLE_WITHIN = 0.10
MAX_WINDOWS = 12
WARM_UP_REQUESTS = 5
"""Before the windows of a point."""


class Point(Value):
    """One point of a load plan: so many requests kept in flight (`concurrency`), or so many sent each second
    (`request_rate`) whatever the answers do; exactly one of the two is given.

    A window has at least `request_count` requests and `window_s` seconds; perf_analyzer's timed windows have
    that many on average.
    """

    batch: int
    concurrency: int | None = None
    request_rate: float | None = None
    distribution: Distribution | None = None
    request_count: int
    window_s: float = 1.0
    shared_memory: SharedMemory
    input_data: InputData = "samples"
    protocol: Protocol = "grpc"
    warm_up: bool

    @property
    def label(self) -> str:
        """How files and log lines name it."""
        load = f"c{self.concurrency}" if self.concurrency else f"r{self.request_rate:g}"
        return f"b{self.batch}{load}"


class Window(Value):
    """One window: inferences/s, and the average latency of a request in ms; at a request rate also the
    inferences/s that were due in it."""

    throughput: float
    avg_ms: float
    offered: float | None = None

    @property
    def kept_up(self) -> float:
        """What must not vary from window to window: throughput or, at a request rate, where it varies as the
        arrivals do, its share of what was due."""
        return self.throughput if self.offered is None else self.throughput / self.offered


class Measurement(LatencyComponents):
    """The last three windows of a point, or at a request rate all of them: a server that stalls is not to
    have the windows forgotten in which it did. Columns mean what they mean in perf_analyzer: throughput in
    inferences/s (requests/s x batch), the rest in ms, client-side percentiles, server-side parts
    as the mean over successful requests. At a request rate a latency counts from the time at which the
    request was due.

    Of the generator itself: how many processes it had, how many cores it used, how late it was on average to
    see what had happened, and whether that bounded what was measured; null: not known. And how many of the
    answers, a random sample, were compared with the reference, and those that were wrong, in words.
    """

    throughput: float
    p50_ms: float
    p90_ms: float
    p95_ms: float
    p99_ms: float
    avg_ms: float
    request_count: int
    windows: tuple[Window, ...]
    generator: str
    generator_version: str
    generator_processes: int | None = None
    generator_cores: float | None = None
    generator_lag_ms: float | None = None
    client_limited: bool | None = None
    answers_checked: int | None = None
    wrong_answers: tuple[str, ...] = ()

    @property
    def stable(self) -> bool:
        return stable(self.windows)

    @property
    def counted(self) -> tuple[Window, ...]:
        """The windows that the figures are of."""
        return self.windows[-counted(self.windows) :]


class Target(Value):
    """What is loaded: a model that answers, real samples for it, where logs go, and the reference by which
    answers are checked (null: they are not)."""

    endpoint: Endpoint
    samples: Path
    logs: Path
    name: str
    reference: Reference | None = None


def timeout_s(point: Point, target: Target) -> float:
    """The time limit of a generator, in seconds: twice the length of all windows with one request at a time
    and every inference as slow as the first, at least 5 minutes; at a request rate, plus the time in which
    all requests become due."""
    slowest_s = target.endpoint.first_request_ms / 1e3 * point.batch
    due_s = MAX_WINDOWS * point.request_count / point.request_rate if point.request_rate else 0.0
    return due_s + max(300.0, 2 * MAX_WINDOWS * max(point.window_s, point.request_count * slowest_s))


def stable(windows: Sequence[Window]) -> bool:
    """Whether the last three windows agree within 10 % in throughput and in latency.

    The rule of perf_analyzer (its documentation, "Measurement Modes"): largest over smallest. At a request
    rate these three together must also have answered what was due in them, but for the same 10 %.
    """
    last = windows[-STABLE_WINDOWS:]
    return (
        len(last) == STABLE_WINDOWS
        and all(
            max(values) <= min(values) * (1 + STABLE_WITHIN)
            for values in ([w.kept_up for w in last], [w.avg_ms for w in last])
        )
        and keeps_up(last)
    )


def spread(values: Sequence[float]) -> float:
    """How far windows lie apart: largest less smallest, over the median."""
    return (max(values) - min(values)) / statistics.median(values)


def counted(windows: Sequence[Window]) -> int:
    """How many of the last windows count."""
    return STABLE_WINDOWS if windows[0].offered is None else len(windows)


def keeps_up(windows: Sequence[Window]) -> bool:
    """Whether what was due at a request rate was answered in the last three windows, but for 10 %."""
    last = windows[-STABLE_WINDOWS:]
    due = sum(w.offered for w in last if w.offered is not None)
    return sum(w.throughput for w in last) >= due * (1 - STABLE_WITHIN)
