"""Digests of files and folders, and writing a file whole."""

from __future__ import annotations

import hashlib
import os
import threading
from pathlib import Path


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


def write_atomic(path: Path, text: str) -> None:
    """Write a file so that a reader, or a crash, sees the old content or the new, never a part."""
    path.parent.mkdir(parents=True, exist_ok=True)
    fresh = path.with_name(f".{path.name}.{os.getpid()}.{threading.get_ident()}")
    try:
        with fresh.open("w", encoding="utf-8") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        fresh.replace(path)
    finally:
        fresh.unlink(missing_ok=True)


def fsync(path: Path) -> None:
    """Have a file, or the names in a folder, on disk before going on."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
