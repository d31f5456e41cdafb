"""The files of a model's folder that build steps can read: their digests are part of the cache keys."""

from __future__ import annotations

import ast
import functools
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from servegrid.domain.plugins import Plugin
from servegrid.host.files import digest_file

GENERATED = frozenset(
    {"__pycache__", ".git", ".ipynb_checkpoints", ".mypy_cache", ".pytest_cache", ".ruff_cache"}
)
"""Folders that other programs write, at any depth."""

NOT_READ = frozenset({"README.md", "client.py", "metrics.py", "model.yaml", "published.csv"})
"""Files at the top of the folder that no build step reads. The result of `metrics.py` is not cached;
`client.py` goes into bundles, `published.csv` into reports; a key holds the fields of `model.yaml` that its
step reads. A Python file of these counts where a file that counts imports it."""


def plugin_sources(plugin: Plugin) -> dict[str, str]:
    """SHA-256 of every file that a step which runs the model's Python files can read and no stage makes.

    All files of the model's folder count but GENERATED and NOT_READ, because its Python files can open any
    file, and import modules in ways that show only when they run. So do the modules below `plugin.paths` that
    they import, by their whole path, and the files and folders that parameters name. What a link to a folder
    leads to does not.
    """
    folder = plugin.folder
    files = set(_files(folder))
    python = [path for path in files if path.suffix == ".py"]
    files.update(imported_modules(python, (folder, *plugin.paths)))
    found = {_name(path, folder): _digest(path) for path in files}
    return dict(sorted(found.items())) | {f"--param {name}": digest for name, digest in plugin.files.items()}


def imported_modules(files: Iterable[Path], places: Sequence[Path]) -> set[Path]:
    """The modules that Python files import, directly or not, each in the first of `places` that has it."""
    found: set[Path] = set()
    waiting = [module for file in files for module in _imports(file)]
    seen: set[str] = set()
    while waiting:
        module = waiting.pop()
        if module not in seen:
            seen.add(module)
            modules = next(filter(None, (_modules(place, module) for place in places)), [])
            found.update(modules)
            waiting += [name for path in modules for name in _imports(path)]
    return found


def _files(folder: Path) -> Iterator[Path]:
    for path in folder.rglob("*"):
        place = path.relative_to(folder)
        generated = path.suffix == ".pyc" or not GENERATED.isdisjoint(place.parts)
        if path.is_file() and not generated and str(place) not in NOT_READ:
            yield path


def _name(path: Path, folder: Path) -> str:
    return path.relative_to(folder).as_posix() if path.is_relative_to(folder) else str(path)


def _digest(path: Path) -> str:
    stat = path.stat()
    return _digest_as_of(path, stat.st_size, stat.st_mtime_ns)


@functools.cache
def _digest_as_of(path: Path, size: int, mtime_ns: int) -> str:
    return digest_file(path)


def _modules(place: Path, module: str) -> list[Path]:
    """The files of a top-level module or package of `place`."""
    single = place / f"{module}.py"
    return [*([single] if single.is_file() else []), *sorted((place / module).rglob("*.py"))]


def _imports(path: Path) -> set[str]:
    """Top-level names that a module imports; none where it does not parse: its step reports the error."""
    try:
        tree = ast.parse(path.read_bytes())
    except (SyntaxError, ValueError):  # ValueError: it holds null bytes
        return set()
    names: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names |= {alias.name.partition(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            names.add(node.module.partition(".")[0])
    return names
