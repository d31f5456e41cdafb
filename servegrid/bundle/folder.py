"""The folder of a bundle: whole or not there, with files in place of links."""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from servegrid.campaign.columns import to_json
from servegrid.domain.errors import UserError
from servegrid.host.files import digest_file, new_folder


@contextmanager
def new_bundle(target: Path) -> Iterator[Path]:
    """A folder to fill, which becomes `target` with the digests of its files.

    Raises:
        UserError: the target is there already, and not empty.
    """
    with new_folder(target) as fresh:
        yield fresh
        files = sorted(path for path in fresh.rglob("*") if path.is_file())
        lines = [f"{digest_file(path)}  {path.relative_to(fresh).as_posix()}\n" for path in files]
        (fresh / "SHA256SUMS").write_text("".join(lines), encoding="utf-8")


def copy(source: Path, target: Path, roots: Sequence[Path]) -> None:
    """Copy a file or folder with what its links lead to.

    Raises:
        UserError: it is not there, or a link leads out of the `roots`.
    """
    real = source.resolve()
    if not any(real.is_relative_to(root.resolve()) for root in roots):
        raise UserError(f"{source}: leads to {real}, which is outside of the campaign and the store")
    if real.is_dir():
        target.mkdir(parents=True, exist_ok=True)
        for path in sorted(real.iterdir()):
            if path.name != "__pycache__":
                copy(path, target / path.name, roots)
    elif real.is_file():
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(real, target)
    else:
        raise UserError(f"{source} is missing; run the cell again")


def write_json(path: Path, value: dict[str, Any]) -> None:
    """A JSON file for people to read."""
    path.write_text(to_json(value, indent=1) + "\n", encoding="utf-8")


def write_script(path: Path, *lines: str) -> None:
    """A shell script that runs in its own folder."""
    text = "\n".join(["#!/bin/sh", "set -eu", 'cd "$(dirname "$0")"', *lines]) + "\n"
    path.write_text(text, encoding="utf-8")
    path.chmod(0o755)
