"""The tritonserver binary of the `nvidia-pytriton` wheel, started on this host.

The wheel lies in a folder of its own (`servegrid doctor --install-server`), without its Python
dependencies, which would hold NumPy back. It has the Python backend only.
"""

from __future__ import annotations

import os
import platform
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from servegrid.domain.server import ServerCapabilities, ServerChoice, ServerOptions
from servegrid.host import libpython
from servegrid.servers.base import Running
from servegrid.servers.local import Binary, environment, library_folder, link, local_server, more_backends
from servegrid.store.site import Site

OPTIONS = ServerOptions(takes=("backend_directory",))
WHEEL = "nvidia-pytriton==0.7.0"
TRITON_RELEASE = "24.10"  # its server says 2.51.0
BACKENDS: tuple[str, ...] = ("python",)
READY_S = 30.0


def capabilities(choice: ServerChoice) -> ServerCapabilities:
    """What the wheel's server can do, with the backends of the choice.

    Raises:
        UserError: the folder of the choice has none.
    """
    more = more_backends(choice)
    return ServerCapabilities(release=TRITON_RELEASE, backends=(*BACKENDS, *more))


def problems(site: Site, choice: ServerChoice = ServerChoice()) -> list[str]:  # noqa: B008  # frozen
    """Why the server cannot be started here, each with what to do."""
    found = []
    if platform.machine() != "x86_64" or sys.platform != "linux":
        found.append(f"tritonserver: the wheel is for Linux x86_64, not {sys.platform} {platform.machine()}")
    elif not _binary(site).is_file():
        found.append(f"tritonserver: not in {_folder(site)}; run `servegrid doctor --install-server`")
    elif not _stub(site).is_file():
        found.append(f"tritonserver: the wheel has no Python backend stub for Python {_python()}")
    if not libpython.find(site.home).is_file():
        found.append(f"libpython: {libpython.find(site.home).name} is not there; {libpython.how_to_get()}")
    return found


def install(site: Site) -> Path:
    """Put the wheel, and libpython where this host has none, into the site; returns the wheel's folder.

    Raises:
        AptError: libpython cannot be had here.
        subprocess.CalledProcessError: pip failed.
    """
    libpython.install(site.home)
    target = _folder(site)
    fresh = target.with_name(f"{target.name}.new")
    shutil.rmtree(fresh, ignore_errors=True)
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--target", str(fresh), WHEEL]
    subprocess.run(pip, check=True)
    shutil.rmtree(target, ignore_errors=True)
    fresh.rename(target)
    return target


@contextmanager
def serve(
    site: Site,
    repository: Path,
    log_path: Path,
    choice: ServerChoice = ServerChoice(),  # noqa: B008  # frozen
) -> Iterator[Running]:
    """A ready server on `repository`, with no model loaded; gone when the block ends.

    Raises:
        StepError: it ended or was not ready within READY_S.
    """
    folders = (_backend_folder(site), *filter(None, [choice.backends]))
    binary = Binary("embedded", _binary(site), folders, READY_S)
    with local_server(binary, site, repository, log_path) as running:
        yield running


def start_line(site: Site) -> tuple[dict[str, str], list[str]]:
    """Environment, and the start of the command line, of a server that is not ours to stop."""
    places = [str(_binary(site)), f"--backend-directory={_backend_folder(site)}"]
    return {
        **environment(library_folder(site)),
        "PATH": f"{Path(sys.executable).parent}{os.pathsep}/usr/bin:/bin",
    }, places


def _backend_folder(site: Site) -> Path:
    """The wheel's Python backend with the stub of this interpreter, as links."""
    folder = site.home / "backends" / _python()
    wheel = _folder(site) / "pytriton" / "tritonserver"
    for source in (
        wheel / "backends" / "python" / "libtriton_python.so",
        wheel / "backends" / "python" / "triton_python_backend_utils.py",
        _stub(site),
    ):
        link(folder / "python", source)
    return folder


def _folder(site: Site) -> Path:
    return site.home / "tritonserver"


def _binary(site: Site) -> Path:
    return _folder(site) / "pytriton" / "tritonserver" / "bin" / "tritonserver"


def _stub(site: Site) -> Path:
    stubs = _folder(site) / "pytriton" / "tritonserver" / "python_backend_stubs"
    return stubs / _python() / "triton_python_backend_stub"


def _python() -> str:
    return f"{sys.version_info.major}.{sys.version_info.minor}"
