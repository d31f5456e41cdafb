"""Locks of this host's devices: one process measures on a device, or several build."""

from __future__ import annotations

import contextlib
import fcntl
import logging
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from servegrid.host.cards import CPU, card_uuid
from servegrid.host.stage_timer import waiting, work

log = logging.getLogger("servegrid")

LOCKS = Path("/tmp/servegrid-locks")  # noqa: S108
"""One place for every process of the host, wherever its TMPDIR points."""


@contextmanager
def device_lock(device: str, *, exclusive: bool) -> Iterator[None]:
    """Hold the device that this process uses: shared with other builds, or alone for a measurement.

    Each card of a host has its own lock, and the CPU has one for all profiles. The kernel releases a lock
    when its holder dies. Builds do not overtake a measurement that already waits, so a block that holds the
    device must not ask for it again.
    """
    path = LOCKS / f"{_lock_name(device)}.lock"
    descriptor = _open_lock(path)
    try:
        with work("wait"), waiting(f"{device}, {'alone' if exclusive else 'shared'}"):
            turn = _open_lock(path.with_suffix(".turn"))
            try:
                _lock(turn, fcntl.LOCK_EX, device)
                _lock(descriptor, fcntl.LOCK_EX if exclusive else fcntl.LOCK_SH, device)
            finally:
                os.close(turn)
        yield
    finally:
        os.close(descriptor)


@contextmanager
def host_lock(what: str) -> Iterator[None]:
    """Hold, alone, what a host has one of for all its cards."""
    descriptor = _open_lock(LOCKS / f"{what}.lock")
    try:
        with work("wait"), waiting(what):
            _lock(descriptor, fcntl.LOCK_EX, what)
        yield
    finally:
        os.close(descriptor)


def _lock(descriptor: int, kind: int, device: str) -> None:
    """Wait for the lock, and say so where it is not free."""
    try:
        fcntl.flock(descriptor, kind | fcntl.LOCK_NB)
    except BlockingIOError:
        log.info("waiting for %s: another campaign builds or measures there", device)
        fcntl.flock(descriptor, kind)


def _lock_name(device: str) -> str:
    """The card, or the CPU where this process uses none."""
    return CPU if device == CPU else card_uuid() or CPU


def _open_lock(path: Path) -> int:
    """A descriptor to lock: every user of the host opens the file that the first one made, to read."""
    try:
        return os.open(path, os.O_RDONLY)
    except FileNotFoundError:
        pass
    with contextlib.suppress(FileExistsError):
        path.parent.mkdir()
        path.parent.chmod(0o1777)  # mkdir's own mode is cut by the umask
    descriptor = os.open(path, os.O_RDONLY | os.O_CREAT, 0o666)
    with contextlib.suppress(PermissionError):
        os.fchmod(descriptor, 0o666)
    return descriptor
