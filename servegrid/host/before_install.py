"""`python -m servegrid.host.before_install HOME`: what `make` needs of this host, before any download.

Prints one line and exits with 2 where the installation could not end well. Gets the shared library of Python
where the host has none. Only the standard library is imported here.
"""

from __future__ import annotations

import importlib.util
import platform
import shutil
import sys
from pathlib import Path

from servegrid.host import libpython
from servegrid.host.apt import AptError

PYTHONS = ((3, 11), (3, 12))
"""Those that the wheel of tritonserver has a Python backend for, and the project supports."""
FREE_GB = 6
"""3.3 GB of packages, the server, and the store of a first campaign."""


def problem(home: Path) -> str | None:
    """Why servegrid cannot be installed here, with what to do; None where it can."""
    if sys.version_info[:2] not in PYTHONS:
        return (
            f"servegrid needs Python 3.11 or 3.12, not {platform.python_version()}: "
            "`uv python install 3.12`, then `make PYTHON=$(uv python find 3.12)`"
        )
    if sys.platform != "linux" or platform.machine() != "x86_64":
        return f"the server's wheel is for Linux on x86_64, not {sys.platform} on {platform.machine()}"
    if not all(map(importlib.util.find_spec, ("venv", "ensurepip"))):
        python = f"python{sys.version_info.major}.{sys.version_info.minor}"
        return f"{sys.executable} has no venv: as root `apt-get install {python}-venv`, or make PYTHON=..."
    free = shutil.disk_usage(Path.cwd()).free / 2**30
    if free < FREE_GB:
        return f"{Path.cwd()}: {free:.1f} GB are free there; the installation needs {FREE_GB} GB"
    try:
        libpython.install(home)
    except AptError as error:
        return str(error)
    except OSError as error:
        return f"{error.filename or home}: {error.strerror}"
    return None


if __name__ == "__main__":
    found = problem(Path(sys.argv[1]).absolute())
    if found:
        print(f"servegrid: {found}", file=sys.stderr)
        sys.exit(2)
