"""How much memory processes have taken, from Linux's /proc; and how they say that it has ended."""

from __future__ import annotations

import contextlib
import re
from pathlib import Path

from servegrid.host import proc

ENDED = re.compile(
    r"out ?of ?memory|MemoryError|bad_alloc|ResourceExhausted|can't allocate memory|cannot allocate memory"
    r"|failed to allocate memory|allocation failed|BFCArena::AllocateRawInternal",
    re.IGNORECASE,
)
"""Words by which Python, C++, PyTorch, TensorFlow, ONNX Runtime, TensorRT and CUDA say that memory has
ended."""


def has_ended(message: str) -> bool:
    """Whether an error's message says that memory has ended."""
    return ENDED.search(message) is not None


def peak_bytes(pid: int) -> int | None:
    """The sum of the largest resident sizes of a process and of everything that it started; None
    where it is gone.

    Pages that several share count once for each (proc(5), VmHWM).
    """
    children: dict[int, list[int]] = {}
    for entry in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError, IndexError):
            child = int(entry.name)
            children.setdefault(int(proc.stat(child)[1]), []).append(child)
    total, waiting = 0, [pid]
    while waiting:
        one = waiting.pop()
        total += _high_water(one)
        waiting += children.get(one, [])
    return total or None


def _high_water(pid: int) -> int:
    with contextlib.suppress(OSError):
        for line in Path(f"/proc/{pid}/status").read_text().splitlines():
            if line.startswith("VmHWM:"):
                return int(line.split()[1]) * 1024
    return 0
