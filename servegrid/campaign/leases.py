"""A lease is a file that its holder keeps locked. The kernel lets go of it when the holder dies, however it
dies, so that nobody has to guess from a clock whether a process still lives.

The files stay: a lock on a file that was unlinked guards nothing. On a file system that several hosts share
(NFS 4) the locks are shared, too.
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
    """Somebody else holds the lease."""


@contextmanager
def holding(path: Path, text: str, *, wait_s: float) -> Iterator[None]:
    """Hold the lease for as long as the block runs; `text` tells others who holds it.

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
    """What the holder wrote; None when nobody holds the lease."""
    try:
        descriptor = os.open(path, os.O_RDONLY)
    except FileNotFoundError:
        return None
    try:
        return None if _locked(descriptor, fcntl.LOCK_SH) else os.read(descriptor, 4096).decode()
    finally:
        os.close(descriptor)


def _locked(descriptor: int, kind: int) -> bool:
    """Whether the lock could be taken at once. (Asking who holds it takes it, shared, for a moment.)"""
    try:
        fcntl.flock(descriptor, kind | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
