"""How much memory processes have taken, from Linux's /proc."""

from __future__ import annotations

import contextlib
from pathlib import Path


def peak_bytes(pid: int) -> int:
    """The sum of the largest resident sizes of a process and of everything that it started.

    Pages that several share count once for each (proc(5), VmHWM).
    """
    children: dict[int, list[int]] = {}
    for entry in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError, IndexError):
            parent = int(entry.read_text().rpartition(")")[2].split()[1])
            children.setdefault(parent, []).append(int(entry.parent.name))
    total, waiting = 0, [pid]
    while waiting:
        one = waiting.pop()
        total += _high_water(one)
        waiting += children.get(one, [])
    return total


def _high_water(pid: int) -> int:
    with contextlib.suppress(OSError):
        for line in Path(f"/proc/{pid}/status").read_text().splitlines():
            if line.startswith("VmHWM:"):
                return int(line.split()[1]) * 1024
    return 0
