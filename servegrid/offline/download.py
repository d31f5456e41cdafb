"""Downloads what a host without a network needs, into a folder."""

from __future__ import annotations

import importlib.metadata
import json
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from servegrid.domain.errors import UserError
from servegrid.host import libpython
from servegrid.host.apt import Apt, AptError
from servegrid.loadgen.perf_analyzer import install as perf_analyzer
from servegrid.offline.layout import EXTRAS, Folder
from servegrid.servers import embedded

BUILD = "setuptools>=77"
"""What builds the project itself, in place (pyproject.toml)."""
GLIBC = range(17, 40)
"""Minor versions of the glibc 2.x for which wheels of Linux are built (PEP 600)."""


def download(target: Path, root: Path, python: str | None, say: Callable[[str], None]) -> None:
    """Fill the folder `target` from the checkout `root`, for this Python or for another one, as "3.12".

    Without apt, or for another Python, it gets no .deb files; `say` takes a line about that.

    Raises:
        UserError: pip cannot get a package.
    """
    folder = Folder(target)
    folder.wheels.mkdir(parents=True, exist_ok=True)
    own = f"{sys.version_info.major}.{sys.version_info.minor}"
    of_python = _of_python(python) if python else []
    folder.facts.write_text(json.dumps({"python": python or own}) + "\n")
    requirements = _requirements(python or own)
    folder.requirements.write_text("".join(f"{line}\n" for line in requirements))
    say(f"downloading the wheels of {len(requirements)} requirements into {folder.wheels}")
    constraints = ["--constraint", str(root / "constraints.txt")]
    _pip(folder, *of_python, *constraints, *requirements)
    say("downloading tritonserver and perf_analyzer")
    _pip(folder, "--no-deps", *of_python, embedded.WHEEL, perf_analyzer.CUDA_RUNTIME)
    wheel = [f"--platform={perf_analyzer.PLATFORM}", f"perf-analyzer=={perf_analyzer.VERSION}"]
    _pip(folder, "--no-deps", "--only-binary=:all:", *wheel)
    if python and python != own:
        say(f"no packages of the system: those of Python {python} are for another host than this one")
        return
    try:
        with tempfile.TemporaryDirectory() as lists:
            apt = Apt(Path(lists))
            apt.download([libpython.package(apt)], folder.packages)
        perf_analyzer.keep_libraries(folder.packages)
    except (AptError, UserError) as error:
        say(f"not all packages of the system: {error}")


def _requirements(python: str) -> list[str]:
    """What the project and its extras require, without the markers, which are decided here; names once."""
    found: dict[str, str] = {canonicalize_name("setuptools"): BUILD}
    for text in importlib.metadata.requires("servegrid") or ():
        requirement = Requirement(text)
        environments = [{"extra": extra, "python_version": python} for extra in ("", *EXTRAS)]
        if requirement.marker is None or any(map(requirement.marker.evaluate, environments)):
            requirement.marker = None
            found[canonicalize_name(requirement.name)] = str(requirement)
    return list(found.values())


def _of_python(python: str) -> list[str]:
    """Options that have pip take wheels of another Python."""
    platforms = [f"--platform=manylinux_2_{minor}_x86_64" for minor in reversed(GLIBC)]
    older = [f"--platform=manylinux{year}_x86_64" for year in ("2014", "2010", "1")]
    return ["--only-binary=:all:", f"--python-version={python}", "--implementation=cp", *platforms, *older]


def _pip(folder: Folder, *arguments: str) -> None:
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--progress-bar=off"]
    done = subprocess.run([*command, f"--dest={folder.wheels}", *arguments], check=False)
    if done.returncode:
        raise UserError(f"pip could not download into {folder.wheels}: its lines above say what is missing")
