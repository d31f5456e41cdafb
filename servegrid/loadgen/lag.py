"""Whether a load generator limits what it measures: it sees answers late, or takes the server's cores."""

from __future__ import annotations

import os
from pathlib import Path

LATE_MS, LATE_SHARE = 0.5, 0.05
"""The client limits the measurement when it sees answers later, on average, than this many ms and this share
of the latency."""
IDLE_SHARE, OWN_SHARE = 0.05, 0.03
"""The client also limits it when less than the first share of the host's cores is idle and the client uses
more than the second: the server could have used those cores."""


def too_late(lag_ms: float, latency_ms: float) -> bool:
    """Whether a client with this average lag is too late for this latency."""
    return lag_ms > max(LATE_MS, LATE_SHARE * latency_ms)


def starves_the_server(idle_cores: float, own_cores: float) -> bool:
    """Whether a generator takes cores from the server; average cores, idle on the host and used by it."""
    host = os.cpu_count() or 1
    return idle_cores < IDLE_SHARE * host and own_cores > OWN_SHARE * host


def idle_s() -> float:
    """Seconds that the host's cores have been idle since it started, added up; from /proc/stat (proc(5))."""
    ticks = int(Path("/proc/stat").read_text(encoding="ascii").split(maxsplit=5)[4])
    return ticks / os.sysconf("SC_CLK_TCK")
