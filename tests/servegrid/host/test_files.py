"""Digests of files and folders, and writing a file whole."""

from __future__ import annotations

import os
import threading
from pathlib import Path

import pytest

from servegrid.host.files import digest_tree, write_atomic


def test_digest_is_of_names_and_content_and_nothing_else(tmp_path: Path) -> None:
    for name in ("one", "other"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "weights.bin").write_bytes(bytes(range(256)))
    os.utime(tmp_path / "other" / "weights.bin", (1, 1))
    assert digest_tree(tmp_path / "one") == digest_tree(tmp_path / "other")


def test_digest_sees_a_rename_a_move_and_a_swap(tmp_path: Path) -> None:
    (tmp_path / "sub").mkdir()
    a, b = tmp_path / "a", tmp_path / "b"
    a.write_text("1")
    b.write_text("2")
    digests = {digest_tree(tmp_path)}
    a.rename(tmp_path / "c")
    digests.add(digest_tree(tmp_path))
    (tmp_path / "c").rename(tmp_path / "sub" / "c")
    digests.add(digest_tree(tmp_path))
    (tmp_path / "sub" / "c").rename(a)
    a.write_text("2")
    b.write_text("1")
    digests.add(digest_tree(tmp_path))
    assert len(digests) == 4


def test_atomic_write_makes_folders_and_replaces(tmp_path: Path) -> None:
    path = tmp_path / "deep" / "er" / "file.txt"
    write_atomic(path, "old, and longer")
    write_atomic(path, "nëw")
    assert path.read_bytes() == "nëw".encode()
    assert list(path.parent.iterdir()) == [path]


def test_atomic_write_that_fails_keeps_the_old_content_and_leaves_no_file(tmp_path: Path) -> None:
    path = tmp_path / "file.txt"
    write_atomic(path, "old")
    with pytest.raises(UnicodeEncodeError):
        write_atomic(path, "x" * 100_000 + "\ud800")  # half a character: cannot be written
    assert path.read_text() == "old"
    assert list(tmp_path.iterdir()) == [path]


def test_reader_of_an_atomic_write_never_sees_a_part(tmp_path: Path) -> None:
    path, size, done = tmp_path / "file.txt", 200_000, threading.Event()
    write_atomic(path, "a" * size)
    seen: set[tuple[int, int]] = set()

    def read() -> None:
        while not done.is_set():
            text = path.read_text()
            seen.add((len(text), len(set(text))))

    reader = threading.Thread(target=read)
    reader.start()
    for number in range(30):
        write_atomic(path, "ab"[number % 2] * size)
    done.set()
    reader.join()
    assert seen == {(size, 1)}
