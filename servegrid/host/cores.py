"""The cores of a card: on a host of several cards each has its own, so that servers and load of one card do
not disturb what is measured on another."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from servegrid.host.cards import card_uuid, nvml


def share(cores: Sequence[int], number: int, of: int) -> tuple[int, ...]:
    """Part `number` (from 0) of so many equal parts; all cores, where there are fewer than parts."""
    each = len(cores) // of
    return tuple(cores[number * each : (number + 1) * each]) if each else tuple(cores)


@contextmanager
def pinned() -> Iterator[None]:
    """In the block this thread, and all that it starts, run on the cores of the card that it uses; on a host
    of one card, or without one, on all."""
    before = os.sched_getaffinity(0)
    uuids = _uuids()
    uuid = card_uuid()
    if len(uuids) > 1 and uuid in uuids:
        os.sched_setaffinity(0, share(sorted(before), uuids.index(uuid), len(uuids)))
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)


def pinned_cores() -> tuple[int, ...] | None:
    """The cores that this process may use, where those are not all of the host."""
    cores = os.sched_getaffinity(0)
    return tuple(sorted(cores)) if len(cores) < (os.cpu_count() or 1) else None


def _uuids() -> list[str]:
    """Those of the host's cards, in one order for every process."""
    with nvml() as pynvml:
        count = pynvml.nvmlDeviceGetCount() if pynvml else 0
        handles = [pynvml.nvmlDeviceGetHandleByIndex(index) for index in range(count)]
        return sorted(str(pynvml.nvmlDeviceGetUUID(handle)) for handle in handles)
