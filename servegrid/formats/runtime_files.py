"""The files of the hosted runtime in a model version's folder.

They import one another relatively and nothing else of the project. Each is copied to its own place below the
version's folder, so the imports resolve where servegrid is not installed.
"""

from __future__ import annotations

import ast
import shutil
from collections.abc import Iterator
from pathlib import Path

LIBRARY = Path(__file__).parents[1]
MODEL = Path("hosting/model.py")
ENTRY = "from .hosting.model import TritonPythonModel\n"
"""`model.py` of the version's folder, which the Python backend imports."""


def session_file(folder: str) -> Path:
    """The session of a format's folder, below servegrid/ and below a version's folder."""
    return Path("formats", folder, "session.py")


def copy_runtime(version: Path, *folders: str) -> None:
    """Copy the runtime, and the sessions of these folders of formats/ with all that they import."""
    for file in runtime_files(MODEL, *map(session_file, folders)):
        (version / file).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(LIBRARY / file, version / file)
    (version / "model.py").write_text(ENTRY, encoding="utf-8")


def runtime_files(*files: Path) -> set[Path]:
    """Modules of servegrid/ and, in turn, the modules that they import relatively."""
    found: set[Path] = set()
    waiting = list(files)
    while waiting:
        if (file := waiting.pop()) not in found:
            found.add(file)
            waiting += _imports(file)
    return found


def _imports(file: Path) -> Iterator[Path]:
    """The modules that a module imports relatively, also inside its functions."""
    for node in ast.walk(ast.parse((LIBRARY / file).read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom) and node.level:
            place = file.parents[node.level - 1].joinpath(*(node.module or "").split("."))
            if (LIBRARY / place).is_dir():  # from .folder import module
                yield from (place / f"{alias.name}.py" for alias in node.names)
            else:
                yield place.with_suffix(".py")
