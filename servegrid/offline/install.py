"""Installs the project from a folder, in its checkout, without a network.

Only the standard library is imported here: nothing is installed yet.
"""

from __future__ import annotations

import importlib.metadata
import json
import os
import re
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from servegrid.host import before_install
from servegrid.host.apt import KEPT
from servegrid.offline.layout import Folder

BUILDS = ("", "-gpu", "-cpu")
"""What a distribution's name ends with in its other builds, as onnxruntime-gpu."""


class OfflineError(Exception):
    """The folder cannot be installed here; the message is one line."""


def install(source: Path, root: Path, home: Path, use_host: Sequence[str] = ()) -> None:
    """Make the checkout's `.venv` and the tools in `home` from the folder `source`.

    `use_host` names packages that this host's Python has and that are kept: its packages are visible in
    `.venv`, and those come from nowhere else.

    Raises:
        OfflineError: the folder is none, is for another Python, or this host lacks something.
        subprocess.CalledProcessError: pip or the installation of the tools failed; its output has the reason.
    """
    folder = Folder(source.resolve())
    _check(folder)
    os.environ |= {KEPT: str(folder.packages), "PIP_NO_INDEX": "1", "PIP_FIND_LINKS": str(folder.wheels)}
    kept = {name: _version(name) for name in use_host}  # before anything is made
    if problem := before_install.problem(home):
        raise OfflineError(problem)
    python = root / ".venv" / "bin" / "python"
    subprocess.run([sys.executable, "-m", "venv", root / ".venv"], check=True)
    if kept:
        _show_packages_of_host(python)
    lines = folder.requirements.read_text().splitlines()
    wanted = [line for line in lines if _name(line) not in kept]
    constraints = root / ".venv" / "host.txt"
    constraints.write_text("".join(f"{name}=={version}\n" for name, version in kept.items() if version))
    pip = [str(python), "-m", "pip", "install", "--progress-bar=off", "--no-compile"]
    subprocess.run([*pip, "--constraint", str(constraints), *wanted], check=True)
    subprocess.run([*pip, "--no-deps", "--no-build-isolation", "--editable", str(root)], check=True)
    (root / ".venv" / ".installed").touch()  # `make` then installs nothing again
    tools = ["doctor", "--install-server", "--install-perf-analyzer"]
    subprocess.run([python.with_name("servegrid"), *tools], check=True)


def _check(folder: Folder) -> None:
    if not folder.facts.is_file():
        raise OfflineError(
            f"{folder.path} is no folder of `servegrid offline download`: it has no offline.json"
        )
    wanted = json.loads(folder.facts.read_text())["python"]
    own = f"{sys.version_info.major}.{sys.version_info.minor}"
    if wanted != own:
        raise OfflineError(
            f"{folder.path} is for Python {wanted}, and this is {own}: run it by python{wanted}, or "
            f"`servegrid offline download DIR --python {own}` on the other host"
        )


def _version(name: str) -> str | None:
    """The version of a host's package; None where another build of it, which pip does not know by this name,
    is the one that the host has."""
    for build in BUILDS:
        try:
            found = importlib.metadata.version(name + build)
        except importlib.metadata.PackageNotFoundError:
            continue
        return None if build else found
    raise OfflineError(f"--use-host {name}: {sys.executable} has no package of this name")


def _show_packages_of_host(python: Path) -> None:
    """Have the new environment find this Python's packages, after its own."""
    code = "import sysconfig; print(sysconfig.get_path('purelib'))"
    found = subprocess.run([python, "-c", code], check=True, capture_output=True, text=True)
    places = [path for path in sys.path if Path(path).name in ("site-packages", "dist-packages")]
    Path(found.stdout.strip(), "host.pth").write_text("".join(f"{path}\n" for path in places))


def _name(requirement: str) -> str:
    name = re.match(r"[A-Za-z0-9._-]+", requirement)
    return re.sub(r"[-_.]+", "-", name.group() if name else "").lower()
