"""What NVIDIA's management library says of the card while a point is measured; nothing without a card."""

from __future__ import annotations

import os
import statistics
import threading
from collections.abc import Iterator, Set
from contextlib import contextmanager
from typing import Any

import psutil

from servegrid.domain.values import Value
from servegrid.host.cards import nvml, used_card

EVERY_S = 0.5

REASONS = {
    "SwPowerCap": "power_cap",
    "HwSlowdown": "hw_slowdown",
    "SwThermalSlowdown": "sw_thermal",
    "HwThermalSlowdown": "hw_thermal",
    "HwPowerBrakeSlowdown": "power_brake",
}
"""NVML's names of what slows clocks down -> ours. Idle and clocks set by a user are no throttling."""
THERMAL = frozenset({"hw_slowdown", "sw_thermal", "hw_thermal", "power_brake"})
"""Those that spoil a figure. At the power cap many cards work under full load: recorded, no fault."""


class CardFacts(Value):
    """The card over a point: least and most SM clock in MHz, highest temperature in C, average power in W,
    what slowed it down, and how many processes of others were on it (null: unknown which are ours)."""

    sm_clock_min_mhz: int
    sm_clock_max_mhz: int
    temperature_c: int
    power_w: float | None
    throttle_reasons: tuple[str, ...]
    foreign_processes: int | None


class Sample(Value):
    """One look at the card; `ours` are those of its processes that belong to this one or to the server."""

    sm_clock_mhz: int
    temperature_c: int
    power_w: float | None
    reasons: tuple[str, ...]
    pids: tuple[int, ...]
    ours: tuple[int, ...]


@contextmanager
def watching(server_pid: int | None = None) -> Iterator[list[Sample]]:
    """Looks at the card that this process uses, taken while the block runs; none without one. The server is
    ours, too, whoever started its process."""
    samples: list[Sample] = []
    with nvml() as library:
        handle = used_card(library)
        if handle is None:
            yield samples
            return
        halt = threading.Event()

        def look() -> None:
            while True:
                samples.append(sample(library, handle, {os.getpid(), server_pid}))
                if halt.wait(EVERY_S):
                    return

        thread = threading.Thread(target=look, daemon=True)
        thread.start()
        try:
            yield samples
        finally:
            halt.set()
            thread.join()


def sample(library: Any, handle: Any, roots: Set[int | None]) -> Sample:
    """What NVML says now; a card that does not tell its power, as some virtual ones, has none.

    Whose its processes are is looked up at once: a load generator with tensors on the card is gone after its
    point. Those of `roots`, and what descends from them, are ours.
    """
    slowed = library.nvmlDeviceGetCurrentClocksEventReasons(handle)
    bits = {ours: getattr(library, f"nvmlClocksEventReason{name}") for name, ours in REASONS.items()}
    try:
        power_w = library.nvmlDeviceGetPowerUsage(handle) / 1e3
    except library.NVMLError:
        power_w = None
    pids = tuple(p.pid for p in library.nvmlDeviceGetComputeRunningProcesses(handle))
    return Sample(
        sm_clock_mhz=library.nvmlDeviceGetClockInfo(handle, library.NVML_CLOCK_SM),
        temperature_c=library.nvmlDeviceGetTemperature(handle, library.NVML_TEMPERATURE_GPU),
        power_w=power_w,
        reasons=tuple(name for name, bit in bits.items() if slowed & bit),
        pids=pids,
        ours=tuple(pid for pid in pids if _descends(pid, roots)),
    )


def facts(samples: list[Sample]) -> CardFacts | None:
    """The looks as one; None where there are none."""
    if not samples:
        return None
    clocks = [s.sm_clock_mhz for s in samples]
    powers = [s.power_w for s in samples if s.power_w is not None]
    pids = {pid for s in samples for pid in s.pids}
    ours = {pid for s in samples for pid in s.ours}
    return CardFacts(
        sm_clock_min_mhz=min(clocks),
        sm_clock_max_mhz=max(clocks),
        temperature_c=max(s.temperature_c for s in samples),
        power_w=statistics.mean(powers) if powers else None,
        throttle_reasons=tuple(r for r in REASONS.values() if any(r in s.reasons for s in samples)),
        # NVML counts processes as the host does: in a container none of them may be known by its number.
        foreign_processes=len(pids - ours) if ours or not pids else None,
    )


def _descends(pid: int, roots: Set[int | None]) -> bool:
    """Whether a process is one of these, or descends from one."""
    try:
        return pid in roots or any(parent.pid in roots for parent in psutil.Process(pid).parents())
    except psutil.Error:
        return False
