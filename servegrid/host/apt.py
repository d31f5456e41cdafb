"""Packages of Debian and Ubuntu, downloaded by apt's own client into a private folder, without root.

Only the standard library is imported here: `make` uses this module before anything is installed.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path

TOOLS = ("apt-get", "apt-cache", "dpkg-deb")
KEPT = "SERVEGRID_PACKAGES"
"""Names a folder of .deb files that is used in place of a mirror (docs/offline.md)."""
MIRROR_TIMEOUT_S = 4
"""A mirror that sends nothing for so long is out of reach."""


class AptError(Exception):
    """The packages cannot be had here; the message is one line that says why."""


class Apt:
    """apt with package lists and a cache in `folder`.

    It reads the host's own sources, or the one that `sources` names. The signatures are checked as ever.
    """

    def __init__(self, folder: Path, sources: Path | None = None) -> None:
        self._folder = folder
        absent = [tool for tool in TOOLS if not shutil.which(tool)]
        if absent:
            raise AptError(f"this host has no {', '.join(absent)}")
        for name in ("state/lists/partial", "cache/archives/partial"):
            (folder / name).mkdir(parents=True, exist_ok=True)
        self._options = [
            f"-oDir::State={folder / 'state'}",
            f"-oDir::Cache={folder / 'cache'}",
            "-oAcquire::Languages=none",
            "-oAcquire::Retries=0",
            f"-oAcquire::http::Timeout={MIRROR_TIMEOUT_S}",
            f"-oAcquire::https::Timeout={MIRROR_TIMEOUT_S}",
            "-oAPT::Update::Error-Mode=any",  # a mirror out of reach is else a warning, and exit code 0
        ]
        if sources:
            self._options += [f"-oDir::Etc::SourceList={sources}", "-oDir::Etc::SourceParts=-"]
            self._options.append("-oDir::State::Status=/dev/null")
        else:
            self._options.append("-oDir::State::Status=/var/lib/dpkg/status")
        if os.geteuid() == 0:
            self._options.append("-oAPT::Sandbox::User=root")  # apt's own user may not reach the folder
        self._run("apt-get", "--quiet=2", "update")

    def versions(self, package: str) -> list[str]:
        """The versions of a package that the sources have, the newest first."""
        lines = self._run("apt-cache", "madison", package).splitlines()
        return list(dict.fromkeys(line.split("|")[1].strip() for line in lines if "|" in line))

    def download(self, packages: Sequence[str], folder: Path) -> None:
        """Download the packages (`name` or `name=version`) into `folder`, as .deb files."""
        folder.mkdir(parents=True, exist_ok=True)
        self._run("apt-get", "--quiet=2", "download", *packages, cwd=folder)

    def unpack(self, packages: Sequence[str], root: Path) -> None:
        """Download the packages and unpack them below `root`."""
        files = self._folder / "packages"
        self.download(packages, files)
        _extract(sorted(files.glob("*.deb")), root)

    def _run(self, tool: str, *arguments: str, cwd: Path | None = None) -> str:
        return _run([tool, *self._options, *arguments], cwd=cwd)


class Kept:
    """The .deb files of a folder, in place of a mirror."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        if not shutil.which("dpkg-deb"):
            raise AptError("this host has no dpkg-deb")

    def versions(self, package: str) -> list[str]:
        """The versions of a package that the folder has."""
        # A file is NAME_VERSION_ARCHITECTURE.deb; apt writes the colon of an epoch as %3a.
        return [file.name.split("_")[1].replace("%3a", ":") for file in self._files(package)]

    def unpack(self, packages: Sequence[str], root: Path) -> None:
        """Unpack the packages (`name` or `name=version`) below `root`."""
        found = {package: self._files(package.partition("=")[0]) for package in packages}
        if absent := [package for package, files in found.items() if not files]:
            raise AptError(f"{self._folder} has no package {', '.join(absent)}")
        _extract([file for files in found.values() for file in files], root)

    def _files(self, package: str) -> list[Path]:
        return sorted(self._folder.glob(f"{package}_*.deb"))


def kept() -> Kept | None:
    """The folder of packages that the environment names."""
    folder = os.environ.get(KEPT)
    return Kept(Path(folder)) if folder else None


def _extract(files: Sequence[Path], root: Path) -> None:
    for file in files:
        _run(["dpkg-deb", "--extract", str(file), str(root)], cwd=None)


def _run(command: Sequence[str], cwd: Path | None) -> str:
    """The command's output. Raises AptError with its first error."""
    # RES_OPTIONS, see resolv.conf(5): without a network each name would else take half a minute.
    env = {**os.environ, "LC_ALL": "C", "RES_OPTIONS": "timeout:1 attempts:2"}
    found = subprocess.run(command, capture_output=True, text=True, cwd=cwd, env=env, check=False)
    if found.returncode:
        errors = [line for line in found.stderr.splitlines() if line.startswith(("E:", "dpkg-deb: error"))]
        raise AptError((errors or [f"{command[0]} ended with exit code {found.returncode}"])[0])
    return found.stdout
