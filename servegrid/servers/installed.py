"""A Triton that is installed on this host, as in NVIDIA's containers: its binary and its own backends.

<folder>/bin/tritonserver
<folder>/backends/NAME/libtriton_NAME.so
<folder>/TRITON_VERSION
"""

from __future__ import annotations

import functools
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from servegrid.domain.errors import StepError, UserError
from servegrid.domain.releases import release_of
from servegrid.domain.server import ServerCapabilities, ServerChoice, ServerOptions
from servegrid.host import libpython
from servegrid.servers.base import Running, why_unusable
from servegrid.servers.launch import shared_memory_options
from servegrid.servers.local import Binary, backends_in, local_server, more_backends
from servegrid.store.site import Site, default_site

OPTIONS = ServerOptions(takes=("server_folder", "backend_directory", "triton_release"))
DEFAULT = Path("/opt/tritonserver")
"""Where NVIDIA's containers have it."""
READY_S = 120.0  # with a card, and the native backends of an image
HELP_S = 30.0
LIBPYTHON = re.compile(rb"libpython(3\.\d+)\.so")


def capabilities(choice: ServerChoice) -> ServerCapabilities:
    """The backends of its folder and its release, by its version. The Python backend counts where its stub
    is for this Python, because it hosts models then.

    Raises:
        UserError: there is no server, or its release is not known.
    """
    folder = _folder(choice)
    more_backends(choice)  # a folder without one is refused
    found = backends_in(_backend_folders(folder, choice))
    why_not_python = _why_not_hosting(found["python"]) if "python" in found else ""
    if why_not_python:
        del found["python"]
    return ServerCapabilities(
        release=release_of(_version(folder), str(folder), choice.triton_release),
        backends=tuple(found),
        why_not_python=why_not_python,
    )


def problems(site: Site, choice: ServerChoice) -> list[str]:
    """Why the server cannot be started here, each with what to do."""
    return why_unusable(capabilities, choice)


@contextmanager
def serve(site: Site, repository: Path, log_path: Path, choice: ServerChoice) -> Iterator[Running]:
    """A ready server on `repository`, with no model loaded; gone when the block ends.

    Raises:
        StepError: it ended or was not ready within READY_S.
    """
    folder = _folder(choice)
    backends = _backend_folders(folder, choice)
    binary = Binary("installed", _binary(folder), backends, READY_S, _shared_memory(_binary(folder)))
    with local_server(binary, site, repository, log_path) as running:
        yield running


def _folder(choice: ServerChoice) -> Path:
    """The folder of the choice, else the default, else that of `tritonserver` on PATH."""
    given = choice.folder
    if given is not None:
        if not _binary(given).is_file():
            raise UserError(f"--server-folder {given}: it has no bin/tritonserver")
        return given
    on_path = shutil.which("tritonserver")
    places = [DEFAULT, *([Path(on_path).resolve().parent.parent] if on_path else [])]
    for place in places:
        if _binary(place).is_file():
            return place
    raise UserError(
        f"--server installed: no {_binary(DEFAULT)}, and no tritonserver on PATH: name its folder with "
        "--server-folder"
    )


def _binary(folder: Path) -> Path:
    return folder / "bin" / "tritonserver"


def _backend_folders(folder: Path, choice: ServerChoice) -> tuple[Path, ...]:
    """Its own backends, then those that the choice adds."""
    return (folder / "backends", *filter(None, [choice.backends]))


def _why_not_hosting(python_backend: Path) -> str:
    """Why the Python backend in this folder cannot run this Python; empty where it can."""
    stub = python_backend / "triton_python_backend_stub"
    if not stub.is_file():
        return f"{stub} is not there"
    found = LIBPYTHON.search(stub.read_bytes())
    own = f"{sys.version_info.major}.{sys.version_info.minor}"
    if found and found[1].decode() != own:
        return f"{stub} is for Python {found[1].decode()}, and servegrid runs on {own}"
    home = default_site().home
    return "" if libpython.find(home).is_file() else f"{libpython.find(home).name} is not on this host"


@functools.cache
def _version(folder: Path) -> str:
    """Its version: from the file of NVIDIA's images, else from the server itself, started once."""
    file = folder / "TRITON_VERSION"
    if file.is_file():
        return file.read_text().strip()
    binary = Binary("installed", _binary(folder), (folder / "backends",), READY_S)
    with tempfile.TemporaryDirectory() as temporary:
        place = Path(temporary)
        (place / "models").mkdir()
        try:
            with local_server(binary, default_site(), place / "models", place / "log") as running:
                return running.version
        except StepError as error:
            raise UserError(f"{_binary(folder)} does not start: {error}") from error


@functools.cache
def _shared_memory(binary: Path) -> tuple[str, ...]:
    """Of this binary. `tritonserver --help` exits with 1."""
    done = subprocess.run([binary, "--help"], capture_output=True, text=True, timeout=HELP_S, check=False)
    return shared_memory_options(done.stdout + done.stderr)
