"""Leases: files that their holders keep locked. The kernel releases the lock when the holder dies, so no
clock decides whether a process still lives.

The files stay: a lock on an unlinked file protects nothing. A file system that several hosts share (NFS 4)
shares the locks, too.
"""

from __future__ import annotations

import fcntl
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from servegrid.domain.errors import UserError

ASK_S = 0.05


class HeldError(UserError):
    """Another process holds the lease."""


@contextmanager
def holding(path: Path, text: str, *, wait_s: float) -> Iterator[None]:
    """Hold the lease while the block runs; `text` names the holder.

    Raises:
        HeldError: another process held it for all of `wait_s`.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o666)
    try:
        deadline = time.monotonic() + wait_s
        while not _locked(descriptor, fcntl.LOCK_EX):
            if time.monotonic() > deadline:
                raise HeldError(f"{holder(path)} holds {path}")
            time.sleep(ASK_S)
        os.ftruncate(descriptor, 0)
        os.pwrite(descriptor, text.encode(), 0)
        yield
    finally:
        os.close(descriptor)


def holder(path: Path) -> str | None:
    """The text of the holder; None when nobody holds the lease."""
    try:
        descriptor = os.open(path, os.O_RDONLY)
    except FileNotFoundError:
        return None
    try:
        return None if _locked(descriptor, fcntl.LOCK_SH) else os.read(descriptor, 4096).decode()
    finally:
        os.close(descriptor)


def _locked(descriptor: int, kind: int) -> bool:
    """Whether the lock was free. (`holder` takes it, shared, for a moment.)"""
    try:
        fcntl.flock(descriptor, kind | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
