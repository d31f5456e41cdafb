"""What every load generator measures, in one meaning."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from tasks.core.values import Endpoint, Value

STABLE_WINDOWS = 3
STABLE_WITHIN = 0.10
WINDOW_S = 1.0
MAX_WINDOWS = 12


class Point(Value):
    """One point of a load plan. A window has at least `request_count` requests and WINDOW_S seconds;
    perf_analyzer's timed windows have that many on average."""

    batch: int
    concurrency: int
    request_count: int
    shared_memory: str
    warm_up: bool


class Window(Value):
    """One window: inferences/s, and the average latency of a request in ms."""

    throughput: float
    avg_ms: float


class Measurement(Value):
    """The last three windows of a point. Columns mean what they mean in perf_analyzer: throughput in
    inferences/s (requests/s x batch), the rest in ms, client-side percentiles, server-side parts
    as the mean over successful requests."""

    throughput: float
    client_send_ms: float
    network_server_send_recv_ms: float
    server_queue_ms: float
    server_compute_input_ms: float
    server_compute_infer_ms: float
    server_compute_output_ms: float
    client_recv_ms: float
    p50_ms: float
    p90_ms: float
    p95_ms: float
    p99_ms: float
    avg_ms: float
    request_count: int
    windows: tuple[Window, ...]
    generator: str
    generator_version: str

    @property
    def stable(self) -> bool:
        return stable(self.windows)


class Target(Value):
    """What is loaded: a model that answers, real samples for it, and where logs go."""

    endpoint: Endpoint
    samples: Path
    logs: Path
    name: str


def timeout_s(point: Point, target: Target) -> float:
    """After how many seconds a generator must be hanging: all windows, were each inference as slow as the
    first request was, and each request alone; 5 minutes at least."""
    slowest_s = target.endpoint.first_request_ms / 1e3 * point.batch
    return max(300.0, 2 * MAX_WINDOWS * point.request_count * slowest_s)


def stable(windows: Sequence[Window]) -> bool:
    """Whether the last three windows agree within 10 % in throughput and in latency.

    The rule of perf_analyzer (its documentation, "Measurement Modes"): largest over smallest.
    """
    last = windows[-STABLE_WINDOWS:]
    return len(last) == STABLE_WINDOWS and all(
        max(values) <= min(values) * (1 + STABLE_WITHIN)
        for values in ([w.throughput for w in last], [w.avg_ms for w in last])
    )
