"""Digests of files and folders, and writing a file whole."""

from __future__ import annotations

import functools
import hashlib
import os
import shutil
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from servegrid.domain.errors import UserError


def digest_tree(folder: Path) -> str:
    """SHA-256 over the relative path and content of every file below `folder`."""
    total = hashlib.sha256()
    for path in sorted(p for p in folder.rglob("*") if p.is_file()):
        total.update(f"{path.relative_to(folder).as_posix()}\0{digest_file(path)}\n".encode())
    return total.hexdigest()


def digest_file(path: Path) -> str:
    """SHA-256 of the content of a file."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def digest_path(path: Path) -> str:
    """Of a file's content, or of a folder's. It may be gigabytes, and every cell asks: it is read again only
    once it was touched."""
    files = path.rglob("*") if path.is_dir() else [path]
    stats = [(file, file.stat()) for file in files]
    return _digest_as_of(path, frozenset((file, stat.st_size, stat.st_mtime_ns) for file, stat in stats))


@functools.lru_cache(maxsize=256)
def _digest_as_of(path: Path, stamps: frozenset[tuple[Path, int, int]]) -> str:
    return digest_tree(path) if path.is_dir() else digest_file(path)


def is_path(text: str) -> bool:
    """Whether a parameter's text is the path of a file or folder: it has a slash, and is there."""
    try:
        return "/" in text and Path(text).exists()
    except OSError:  # too long for a path
        return False


@contextmanager
def writing(path: Path) -> Iterator[None]:
    """An error of the system in the block names `path` where it names no file, as a full disk's does."""
    try:
        yield
    except OSError as error:
        if error.errno is not None and error.filename is None:
            error.filename = str(path)
        raise


def write_atomic(path: Path, content: str | bytes) -> None:
    """Write a file so that a reader, or a crash, sees the old content or the new, never a part."""
    path.parent.mkdir(parents=True, exist_ok=True)
    fresh = path.with_name(f".{path.name}.{os.getpid()}.{threading.get_ident()}")
    try:
        with writing(path), fresh.open("wb") as file:
            file.write(content.encode() if isinstance(content, str) else content)
            file.flush()
            os.fsync(file.fileno())
        fresh.replace(path)
    finally:
        fresh.unlink(missing_ok=True)


@contextmanager
def new_folder(target: Path) -> Iterator[Path]:
    """A folder to fill, which becomes `target`; nothing is left of one that fails.

    Raises:
        UserError: the target is there already, and not empty.
    """
    if target.exists() and (not target.is_dir() or any(target.iterdir())):
        raise UserError(f"{target} exists; name a folder that is new or empty")
    fresh = target.with_name(f".{target.name}.{os.getpid()}")
    try:
        fresh.mkdir(parents=True)
        yield fresh
        if target.exists():
            target.rmdir()
        fresh.rename(target)
    finally:
        shutil.rmtree(fresh, ignore_errors=True)


def fsync(path: Path) -> None:
    """Have a file, or the names in a folder, on disk before going on."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
