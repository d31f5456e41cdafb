"""The files of a model's folder that build steps can read: their digests are part of the cache keys."""

from __future__ import annotations

import ast
import functools
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import NamedTuple

from servegrid.domain.plugins import Plugin
from servegrid.host.files import digest_file

GENERATED = frozenset(
    {"__pycache__", ".git", ".ipynb_checkpoints", ".mypy_cache", ".pytest_cache", ".ruff_cache"}
)
"""Folders that other programs write, at any depth."""

SPEC = "model.yaml"
"""A key holds those of its fields that the step reads."""

NOT_READ = ("README.md", "client.py", "metrics.py", "published.csv", "labels.npz", "labels.csv")
"""Files at the top of the folder that no build step reads: the result of `metrics.py` is not cached,
labels are read with it,
`client.py` goes into bundles, `published.csv` into reports. One of them counts where a Python file that
counts contains its name."""


def plugin_sources(plugin: Plugin) -> dict[str, str]:
    """SHA-256 of every file that a step which runs the model's Python files can read and no stage makes.

    All files of the model's folder count but GENERATED, SPEC and NOT_READ, because its Python files can open
    any file, and import modules in ways that show only when they run. So do the modules below `plugin.paths`
    that they import, by their whole path, and the files and folders that parameters name. What a link to a
    folder leads to does not.
    """
    folder = plugin.folder
    files = _files(folder)
    imported = imported_modules((path for path in files if path.suffix == ".py"), (folder, *plugin.paths))
    found = {_name(path, folder): _digest(_stamp(path)) for path in files | imported}
    return dict(sorted(found.items())) | {f"--param {name}": digest for name, digest in plugin.files.items()}


def imported_modules(files: Iterable[Path], places: Sequence[Path]) -> set[Path]:
    """The modules that Python files import, directly or not, each in the first of `places` that has it."""
    found: set[Path] = set()
    waiting = [module for file in files for module in _imports(_stamp(file))]
    seen: set[str] = set()
    while waiting:
        module = waiting.pop()
        if module not in seen:
            seen.add(module)
            modules = next(filter(None, (_modules(place, module) for place in places)), [])
            found.update(modules)
            waiting += [name for path in modules for name in _imports(_stamp(path))]
    return found


def _files(folder: Path) -> set[Path]:
    """All files that count, without those of other folders."""
    unread = {path for path in (folder / name for name in NOT_READ) if path.is_file()}
    found = {path for path in folder.rglob("*") if path.is_file() and not _is_generated(path, folder)}
    found -= {folder / SPEC, *unread}
    while named := {path for path in unread if _is_named(path, found)}:
        found, unread = found | named, unread - named
    return found


def _is_generated(path: Path, folder: Path) -> bool:
    return path.suffix == ".pyc" or not GENERATED.isdisjoint(path.relative_to(folder).parts)


def _is_named(path: Path, files: Iterable[Path]) -> bool:
    """Whether one of these Python files contains the name of a file, or of a module."""
    name = (path.stem if path.suffix == ".py" else path.name).encode()
    return any(_contains(_stamp(file), name) for file in files if file.suffix == ".py")


def _name(path: Path, folder: Path) -> str:
    return path.relative_to(folder).as_posix() if path.is_relative_to(folder) else str(path)


class _Stamp(NamedTuple):
    """A file as it is now: what is cached for it holds until it is written again."""

    path: Path
    size: int
    mtime_ns: int


def _stamp(path: Path) -> _Stamp:
    stat = path.stat()
    return _Stamp(path, stat.st_size, stat.st_mtime_ns)


@functools.cache
def _digest(file: _Stamp) -> str:
    return digest_file(file.path)


@functools.cache
def _contains(file: _Stamp, name: bytes) -> bool:
    return name in file.path.read_bytes()


def _modules(place: Path, module: str) -> list[Path]:
    """The files of a top-level module or package of `place`."""
    single = place / f"{module}.py"
    return [*([single] if single.is_file() else []), *sorted((place / module).rglob("*.py"))]


@functools.cache
def _imports(file: _Stamp) -> frozenset[str]:
    """Top-level names that a module imports; none where it does not parse: its step reports the error."""
    try:
        tree = ast.parse(file.path.read_bytes())
    except (SyntaxError, ValueError):  # ValueError: it holds null bytes
        return frozenset()
    names: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names |= {alias.name.partition(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            names.add(node.module.partition(".")[0])
    return frozenset(names)
