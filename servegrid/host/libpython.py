"""The shared library of this Python interpreter, which Triton's Python backend loads.

Debian's and Ubuntu's python3 come without it: there it is got from the package of the same version, without
root. Only the standard library is imported here: `make` uses this module before anything is installed.
"""

from __future__ import annotations

import platform
import shutil
import sys
import sysconfig
import tempfile
from pathlib import Path

from servegrid.host.apt import Apt, AptError, Kept, kept


def find(home: Path) -> Path:
    """Its path: the host's own, or else where `install` puts it below the site's folder `home`."""
    folder = Path(sysconfig.get_config_var("LIBDIR") or "/usr/lib")
    multiarch = folder / str(sysconfig.get_config_var("MULTIARCH") or "")
    candidates = [multiarch / _name(), folder / _name()]
    return next((path for path in candidates if path.is_file()), _private(home))


def install(home: Path) -> Path:
    """Get it below `home` where the host has none; its path.

    Raises:
        AptError: it cannot be had here; one line, with what to do.
    """
    path = find(home)
    if path.is_file():
        return path
    path.parent.mkdir(parents=True, exist_ok=True)
    try:
        with tempfile.TemporaryDirectory(dir=path.parent) as folder:
            _unpack(Path(folder), path)
    except AptError as error:
        raise AptError(f"{_name()} is not on this host: {error}; {how_to_get()}") from error
    return path


def how_to_get() -> str:
    """What a person can do where it is not there."""
    package = f"as root `apt-get install libpython{_python()}`, or " if shutil.which("apt-get") else ""
    return (
        f"{package}take a Python that has it: `uv python install {_python()}`, then "
        f"`make PYTHON=$(uv python find {_python()})` (pyenv: PYTHON_CONFIGURE_OPTS=--enable-shared)"
    )


def package(apt: Apt | Kept) -> str:
    """The package `name=version` of this interpreter's release.

    Raises:
        AptError: there is none. Another patch release's library would run this interpreter's standard
            library, silently.
    """
    release = platform.python_version()
    names = [f"libpython{_python()}", f"libpython{_python()}t64"]  # Ubuntu 24.04 has the second
    found = {name: apt.versions(name) for name in names}
    wanted = [f"{name}={v}" for name in names for v in found[name] if v.partition("-")[0] == release]
    if not wanted:
        offered = ", ".join(v for versions in found.values() for v in versions) or "none"
        raise AptError(f"apt's sources have no libpython{_python()} {release}, only: {offered}")
    return wanted[0]


def _unpack(folder: Path, path: Path) -> None:
    apt = kept() or Apt(folder)
    wanted = package(apt)
    apt.unpack([wanted], folder / "root")
    libraries = [p for p in (folder / "root").rglob(_name()) if p.is_file()]
    if not libraries:
        raise AptError(f"the package {wanted} has no {_name()}")
    shutil.copy(libraries[0], folder / _name())
    (folder / _name()).replace(path)


def _private(home: Path) -> Path:
    return home / "libpython" / platform.python_version() / _name()


def _name() -> str:
    return str(sysconfig.get_config_var("INSTSONAME") or f"libpython{_python()}.so.1.0")


def _python() -> str:
    return f"{sys.version_info.major}.{sys.version_info.minor}"
