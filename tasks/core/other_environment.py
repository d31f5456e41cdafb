"""Python environments beside this one, which a profile names for what this one cannot do."""

from __future__ import annotations

import functools
import json
import subprocess
from collections.abc import Iterable
from pathlib import Path

from packaging.utils import canonicalize_name

from tasks.core.environment import ALTERNATIVES
from tasks.core.errors import UnsupportedError

CHILD = ("filelock", "numpy", "packaging", "pydantic", "PyYAML")
"""Distributions that a child process of ours needs anywhere (`tasks.child`)."""
LEAST_PYTHON = (3, 11)
LIST = """
import importlib.metadata, json, sys
found = {d.metadata["Name"]: d.version for d in importlib.metadata.distributions()}
print(json.dumps({"python": sys.version_info[:2], "installed": found}))
"""


def interpreter(folder: Path) -> Path:
    """The Python of a virtual environment, or of any other installation's prefix."""
    return folder / "bin" / "python"


def versions_in(folder: Path, distributions: Iterable[str]) -> dict[str, str]:
    """Version of each distribution in an environment; "absent" where it is not installed there.

    Raises:
        UnsupportedError: it is no environment, or its Python is too old for our code.
    """
    found = _installed(interpreter(folder))
    return {
        name: next((found[n] for n in map(canonicalize_name, _providers(name)) if n in found), "absent")
        for name in sorted(distributions)
    }


def check(folder: Path, distributions: Iterable[str]) -> None:
    """Raises UnsupportedError where an environment lacks one of these, or what any child process needs."""
    found = versions_in(folder, {*distributions, *CHILD})
    absent = [name for name, version in found.items() if version == "absent"]
    if absent:
        raise UnsupportedError(f"{folder}: not installed there: {', '.join(absent)}")


@functools.cache
def _installed(python: Path) -> dict[str, str]:
    if not python.is_file():
        raise UnsupportedError(f"{python}: no such file; name the folder of a Python environment")
    try:
        listed = subprocess.run([python, "-c", LIST], capture_output=True, text=True, check=True, timeout=60)
        answer = json.loads(listed.stdout)
    except (OSError, subprocess.SubprocessError, ValueError) as error:
        raise UnsupportedError(f"{python} does not run: {error}") from error
    if tuple(answer["python"]) < LEAST_PYTHON:
        least, found = (".".join(map(str, version)) for version in (LEAST_PYTHON, answer["python"]))
        raise UnsupportedError(f"{python}: Python {found}; {least} at least is needed")
    return {canonicalize_name(name): version for name, version in answer["installed"].items()}


def _providers(distribution: str) -> tuple[str, ...]:
    return distribution, *ALTERNATIVES.get(distribution, ())
