"""The trust checks of a measured point. Pure."""

from __future__ import annotations

import math

from servegrid.domain.values import Value
from servegrid.host.contention import HostLoad
from servegrid.host.gpu_monitor import THERMAL, CardFacts
from servegrid.loadgen.base import Measurement, Point, spread
from servegrid.loadgen.latency import COMPONENTS

LITTLE_WITHIN = 0.10
"""As far as windows of a stable point may differ: the law holds for means over the same time."""
SUM_WITHIN, SUM_WITHIN_MS = 0.05, 0.05
CONTENTION = "contention"
"""The check that fails where other programs took the host's cores."""


class TrustCard(Value):
    """The trust checks of one point; null: not known.

    Spreads are of the counted windows. The residual of Little's law is throughput x latency / (concurrency x
    batch) - 1, that of the component sum its difference to the average latency in ms.
    """

    repeats: int
    throughput_spread: float
    latency_spread: float
    littles_law_residual: float | None
    component_residual_ms: float
    card: CardFacts | None = None
    host: HostLoad = HostLoad()
    failed_checks: tuple[str, ...]


def examine(
    point: Point,
    found: Measurement,
    card: CardFacts | None = None,
    host: HostLoad = HostLoad(),  # noqa: B008  # frozen
) -> TrustCard:
    """Check a point."""
    windows = found.counted
    residual = None
    if point.concurrency:
        in_flight = found.throughput / point.batch * found.avg_ms / 1e3
        residual = in_flight / point.concurrency - 1
    off_ms = math.fsum(getattr(found, column) for column in COMPONENTS) - found.avg_ms
    slack_ms = SUM_WITHIN * found.avg_ms + SUM_WITHIN_MS
    checks = {
        "stability": found.stable,
        "littles_law": residual is None or abs(residual) <= LITTLE_WITHIN,
        # The network part is a remainder: it is negative where the server's parts exceed the whole.
        "component_sum": abs(off_ms) <= slack_ms and found.network_server_send_recv_ms >= -slack_ms,
        "client_limited": not found.client_limited,
        CONTENTION: not host.contended,
        "throttled": card is None or not THERMAL.intersection(card.throttle_reasons),
        "foreign_processes": card is None or not card.foreign_processes,
    }
    return TrustCard(
        repeats=len(windows),
        throughput_spread=spread([w.kept_up for w in windows]),
        latency_spread=spread([w.avg_ms for w in windows]),
        littles_law_residual=residual,
        component_residual_ms=off_ms,
        card=card,
        host=host,
        failed_checks=tuple(name for name, passed in checks.items() if not passed),
    )
