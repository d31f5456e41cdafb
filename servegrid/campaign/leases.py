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
from servegrid.domain.values import Value

ASK_S = 0.05


class HeldError(UserError):
    """Another process holds the lease."""


class Lease:
    """A lease that this process holds, with the text in its file."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor

    @property
    def text(self) -> str:
        """What its last holder wrote."""
        return _text(self._descriptor)

    def write(self, text: str) -> None:
        """Replace the text."""
        os.ftruncate(self._descriptor, 0)
        os.pwrite(self._descriptor, text.encode(), 0)


class Look(Value):
    """A lease as another process sees it: whether it is held, and the text in its file."""

    held: bool = False
    text: str = ""


@contextmanager
def holding(path: Path, text: str, *, wait_s: float) -> Iterator[Lease]:
    """Hold the lease while the block runs; `text` names the holder.

    Raises:
        HeldError: another process held it for all of `wait_s`.
    """
    with _opened(path) as descriptor:
        deadline = time.monotonic() + wait_s
        while not _locked(descriptor, fcntl.LOCK_EX):
            if time.monotonic() > deadline:
                raise HeldError(f"{holder(path)} holds {path}")
            time.sleep(ASK_S)
        lease = Lease(descriptor)
        lease.write(text)
        yield lease


@contextmanager
def trying(path: Path) -> Iterator[Lease | None]:
    """Hold the lease while the block runs, its text as it was; None if another process holds it."""
    with _opened(path) as descriptor:
        yield Lease(descriptor) if _locked(descriptor, fcntl.LOCK_EX) else None


def look(path: Path) -> Look:
    """The lease as it is now; one without a file is not held."""
    try:
        descriptor = os.open(path, os.O_RDONLY)
    except FileNotFoundError:
        return Look()
    try:
        return Look(held=not _locked(descriptor, fcntl.LOCK_SH), text=_text(descriptor))
    finally:
        os.close(descriptor)


def holder(path: Path) -> str | None:
    """The text of the holder; None when nobody holds the lease."""
    found = look(path)
    return found.text if found.held else None


@contextmanager
def _opened(path: Path) -> Iterator[int]:
    path.parent.mkdir(parents=True, exist_ok=True)
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o666)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def _text(descriptor: int) -> str:
    return os.pread(descriptor, 4096, 0).decode()


def _locked(descriptor: int, kind: int) -> bool:
    """Whether the lock was free. (`look` takes it, shared, for a moment.)"""
    try:
        fcntl.flock(descriptor, kind | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
