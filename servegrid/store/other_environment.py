"""Other Python environments, folders or images, that a profile names for some conversions."""

from __future__ import annotations

import functools
import json
import subprocess
from collections.abc import Iterable, Sequence
from pathlib import Path

from packaging.utils import canonicalize_name

import servegrid
from servegrid.domain.errors import StepError, UnsupportedError
from servegrid.domain.profile import Environment, Image
from servegrid.host import containers
from servegrid.host.cards import CPU, card_uuid
from servegrid.host.containers import Container
from servegrid.host.environment import ALTERNATIVES

CHILD = ("filelock", "numpy", "packaging", "pydantic", "PyYAML")
"""Distributions that every child process needs (`servegrid.frameworks`)."""
LEAST_PYTHON = (3, 11)
CODE = Path(servegrid.__file__).parent
"""The package that a child process runs."""
LIST = """
import importlib.metadata, json, sys
found = {d.metadata["Name"]: d.version for d in importlib.metadata.distributions()}
print(json.dumps({"python": sys.version_info[:2], "installed": found}))
"""


def interpreter(folder: Path) -> Path:
    """The Python of a virtual environment or of another prefix."""
    return folder / "bin" / "python"


def container(image: Image, profile: str, files: Iterable[Path], output: Path, name: str | None) -> Container:
    """A container for a child process: it sees our code and the files that the step reads, can write to
    `output` only, has no network, and has the card of this process unless the profile is the CPU's."""
    return Container(
        image=image.image,
        name=name,
        files=(CODE, *files),
        output=output,
        env={"PYTHONPATH": str(CODE.parent)},
        gpu=None if profile == CPU else card_uuid(),
    )


def versions_in(environment: Environment, distributions: Iterable[str]) -> dict[str, str]:
    """Version of each distribution in an environment; "absent" where it is not installed there.

    Raises:
        UnsupportedError: the environment does not run, or its Python is too old.
    """
    found = _installed(environment)
    return {
        name: next((found[n] for n in map(canonicalize_name, _providers(name)) if n in found), "absent")
        for name in sorted(distributions)
    }


def check(environment: Environment, distributions: Iterable[str]) -> None:
    """Raises UnsupportedError where an environment lacks one of these, or a distribution of CHILD."""
    found = versions_in(environment, {*distributions, *CHILD})
    absent = [name for name, version in found.items() if version == "absent"]
    if absent:
        raise UnsupportedError(f"{environment}: not installed there: {', '.join(absent)}")


@functools.cache
def _installed(environment: Environment) -> dict[str, str]:
    if isinstance(environment, Image):
        python, listed = str(environment), _in_image(environment, ["python3", "-c", LIST])
    else:
        python = str(interpreter(environment))
        listed = _in_folder(python, ["-c", LIST])
    try:
        answer = json.loads(listed.splitlines()[-1])  # the entrypoint of an image can print lines before
    except (IndexError, ValueError) as error:
        raise UnsupportedError(f"{python} does not run: {error}") from error
    if tuple(answer["python"]) < LEAST_PYTHON:
        least, found = (".".join(map(str, version)) for version in (LEAST_PYTHON, answer["python"]))
        raise UnsupportedError(f"{python}: Python {found}; {least} at least is needed")
    return {canonicalize_name(name): version for name, version in answer["installed"].items()}


def _in_folder(python: str, words: Sequence[str]) -> str:
    if not Path(python).is_file():
        raise UnsupportedError(f"{python}: no such file; name the folder of a Python environment")
    try:
        return subprocess.run(
            [python, *words], capture_output=True, text=True, check=True, timeout=containers.ASK_S
        ).stdout
    except (OSError, subprocess.SubprocessError) as error:
        raise UnsupportedError(f"{python} does not run: {error}") from error


def _in_image(image: Image, words: Sequence[str]) -> str:
    try:
        containers.ask("image", "inspect", "--format", "{{.Id}}", image.image)
    except StepError as error:
        raise UnsupportedError(f"{error} (`docker pull {image}` brings an image here)") from error
    try:
        return containers.ask_inside(Container(image=image.image), words)
    except StepError as error:
        raise UnsupportedError(f"{image}: python3 does not run there: {error}") from error


def _providers(distribution: str) -> tuple[str, ...]:
    return distribution, *ALTERNATIVES.get(distribution, ())
