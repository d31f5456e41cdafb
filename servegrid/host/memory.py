"""How much memory processes have taken, and whether an error's message says that memory has ended."""

from __future__ import annotations

import contextlib
import re
from pathlib import Path

import psutil

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
    try:
        process = psutil.Process(pid)
        processes = [process, *process.children(recursive=True)]
    except psutil.Error:
        return None
    return sum(_high_water(each.pid) for each in processes) or None


def _high_water(pid: int) -> int:
    """VmHWM of proc_pid_status(5), which psutil does not read; 0 of a process that has ended."""
    with contextlib.suppress(OSError):
        for line in Path(f"/proc/{pid}/status").read_text().splitlines():
            if line.startswith("VmHWM:"):
                return int(line.split()[1]) * 1024
    return 0
