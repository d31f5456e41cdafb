"""How much of the host's CPU other programs, and other virtual machines, took while a block ran.

Ours are this process, the server, and everything that either has started: what is left of the host's busy
time is of others. The kernel's own work on interrupts counts for neither, because most of it is the traffic
between client and server.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import NamedTuple

import psutil

from servegrid.domain.values import Value
from servegrid.host.cards import pinned_cores

SHARE = 0.05
"""Of the cores that this process may use: what others may take of them before a figure is in doubt."""


PROBE_S = 1.0


class HostLoad(Value):
    """Cores that others took on average, of those that this process may use; null: not known, because the
    server's process is not. pinned_cores: those, where they are not all of the host."""

    foreign_cores: float | None = None
    stolen_cores: float | None = None
    pinned_cores: tuple[int, ...] | None = None

    @property
    def contended(self) -> bool:
        """Whether others took more than SHARE of the cores."""
        taken = (self.foreign_cores or 0.0) + (self.stolen_cores or 0.0)
        return taken > SHARE * len(os.sched_getaffinity(0))


class CpuTimes(NamedTuple):
    """Seconds: the time of day's clock, busy and stolen time of the cores that we may use, and ours."""

    at: float
    busy: float
    stolen: float
    ours: float


@contextmanager
def watching(server_pid: int | None) -> Iterator[list[HostLoad]]:
    """A list that holds the load of the block once it has ended. `server_pid`: the server's process, null
    where it runs on another host."""
    found: list[HostLoad] = []
    before = cpu_times(server_pid)
    yield found
    found.append(load(before, cpu_times(server_pid)))


def at_rest(server_pid: int | None) -> bool:
    """Whether others leave the cores alone for a second."""
    with watching(server_pid) as found:
        time.sleep(PROBE_S)
    return not found[0].contended


def cpu_times(server_pid: int | None = None) -> CpuTimes:
    """The times of now."""
    allowed = os.sched_getaffinity(0)
    cores = [core for number, core in enumerate(psutil.cpu_times(percpu=True)) if number in allowed]
    busy = sum(core.user + core.nice + core.system for core in cores)  # guests are part of user
    stolen = sum(getattr(core, "steal", 0.0) for core in cores)
    return CpuTimes(time.monotonic(), busy, stolen, _ours(server_pid))


def load(before: CpuTimes, after: CpuTimes) -> HostLoad:
    """The load between two times."""
    seconds = after.at - before.at
    foreign = (after.busy - before.busy) - (after.ours - before.ours)
    return HostLoad(
        foreign_cores=max(foreign, 0.0) / seconds,
        stolen_cores=(after.stolen - before.stolen) / seconds,
        pinned_cores=pinned_cores(),
    )


def _ours(server_pid: int | None) -> float:
    """CPU time of this process, the server and all below them, those that have ended included."""
    roots = [psutil.Process()]
    if server_pid is not None and psutil.pid_exists(server_pid):
        roots.append(psutil.Process(server_pid))
    processes = {root.pid: root for root in roots}
    for root in roots:
        processes |= {child.pid: child for child in _children(root)}
    return sum(map(_seconds, processes.values()))


def _children(process: psutil.Process) -> list[psutil.Process]:
    try:
        return list(process.children(recursive=True))
    except psutil.Error:  # it has just ended
        return []


def _seconds(process: psutil.Process) -> float:
    """Its own time and that of its children that have ended."""
    try:
        used = process.cpu_times()
    except psutil.Error:
        return 0.0
    return float(used.user + used.system + used.children_user + used.children_system)
