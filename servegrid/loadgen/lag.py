"""Whether a load generator shows in what it measures: it sees answers late, or takes the server's cores."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

from servegrid.host import proc

LATE_MS, LATE_SHARE = 0.5, 0.05
"""A client that is on average later than this, and than this share of the latency, to see an answer shows
itself beside the server: it bounds the measurement."""
IDLE_SHARE, OWN_SHARE = 0.05, 0.03
"""Where less than this share of a host's cores is idle, the server could have had what the client takes of
them: more than this own share bounds the measurement, too."""


def too_late(lag_ms: float, latency_ms: float) -> bool:
    """Whether a client is too late for what it measures."""
    return lag_ms > max(LATE_MS, LATE_SHARE * latency_ms)


def starves_the_server(idle_cores: float, own_cores: float) -> bool:
    """Whether a generator takes cores that the server would have: how many of the host's were idle while it
    ran, and how many it had, both on average."""
    host = os.cpu_count() or 1
    return idle_cores < IDLE_SHARE * host and own_cores > OWN_SHARE * host


def idle_times() -> dict[int, float]:
    """Seconds that the host's cores were idle, added up, under 0; and by process what those of idle priority
    had, which make way for all else (`servegrid.host.awake`).

    From /proc/stat and /proc/PID/stat, see proc(5)."""
    ticks = {0: int(Path("/proc/stat").read_text(encoding="ascii").split(maxsplit=5)[4])}
    for process in Path("/proc").iterdir():
        with contextlib.suppress(ValueError, OSError):  # it is none, or has ended
            if os.sched_getscheduler(pid := int(process.name)) == os.SCHED_IDLE:
                fields = proc.stat(pid)
                ticks[pid] = int(fields[11]) + int(fields[12])
    return {key: count / os.sysconf("SC_CLK_TCK") for key, count in ticks.items()}


def idle_s(first: dict[int, float], last: dict[int, float]) -> float:
    """Seconds, added up, in which the cores had nothing else to do between two such readings."""
    return sum(seconds - first.get(key, 0.0) for key, seconds in last.items())
