"""The tritonserver binary of the `nvidia-pytriton` wheel, started on this host.

The wheel lies in a folder of its own (`servegrid doctor --install-server`), without its Python
dependencies, which would hold NumPy back. It has the Python backend only.
"""

from __future__ import annotations

import os
import platform
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from servegrid.domain.errors import StepError
from servegrid.domain.server import ServerCapabilities, ServerChoice, ServerOptions
from servegrid.host import libpython, process_environment
from servegrid.servers.base import Running
from servegrid.servers.launch import PORT_TAKEN, Start, started
from servegrid.store.site import Site

OPTIONS = ServerOptions(takes=())
WHEEL = "nvidia-pytriton==0.7.0"
TRITON_RELEASE = "24.10"  # its server says 2.51.0
BACKENDS: tuple[str, ...] = ("python",)
PROTOCOLS = ("http", "grpc")
READY_S = 30.0
NOT_PLAIN = re.compile(r"[^\w@%+=,./-]")


def capabilities(choice: ServerChoice) -> ServerCapabilities:
    """What the wheel's server can do."""
    return ServerCapabilities(release=TRITON_RELEASE, backends=BACKENDS)


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
    with ExitStack() as stack:
        try:
            running = stack.enter_context(_serve(site, repository, log_path))
        except StepError as error:
            if PORT_TAKEN not in str(error):
                raise
            # Somebody has begun to listen where nobody did when the ports were chosen.
            running = stack.enter_context(_serve(site, repository, log_path))
        yield running


@contextmanager
def _serve(site: Site, repository: Path, log_path: Path) -> Iterator[Running]:
    start = Start.fresh()
    with ExitStack() as stack:
        folders = _for_a_shell(repository, _backend_folder(site), _library_folder(site))
        models, backends, library = stack.enter_context(folders)
        env = {**process_environment.of_site(site.home), **_environment(library)}
        args = [
            str(_binary(site)),
            *start.options(models),
            f"--backend-directory={backends}",
            "--allow-metrics=false",  # nobody reads them, and a port less may be taken by another
            *(f"--{kind}-address=127.0.0.1" for kind in PROTOCOLS),
            *(f"--{kind}-port={start.ports[kind]}" for kind in PROTOCOLS),
        ]
        yield stack.enter_context(
            started(args, start, provider="embedded", log_path=log_path, ready_s=READY_S, env=env)
        )


@contextmanager
def _for_a_shell(*folders: Path) -> Iterator[list[Path]]:
    """The folders, by links with plain names where theirs have a space or another special character: Triton's
    Python backend starts each model by a shell command without quotes, and LD_LIBRARY_PATH is split at `:`
    and `;`."""
    if not any(NOT_PLAIN.search(str(folder)) for folder in folders):
        yield list(folders)
        return
    place = None if not NOT_PLAIN.search(tempfile.gettempdir()) else "/tmp"  # noqa: S108
    with tempfile.TemporaryDirectory(prefix="servegrid-", dir=place) as temporary:
        links = [Path(temporary) / str(number) for number in range(len(folders))]
        for link, folder in zip(links, folders, strict=True):
            link.symlink_to(folder.absolute())
        yield links


def start_line(site: Site) -> tuple[dict[str, str], list[str]]:
    """Environment, and the start of the command line, of a server that is not ours to stop."""
    places = [str(_binary(site)), f"--backend-directory={_backend_folder(site)}"]
    return {
        **_environment(_library_folder(site)),
        "PATH": f"{Path(sys.executable).parent}{os.pathsep}/usr/bin:/bin",
    }, places


def _environment(library: Path) -> dict[str, str]:
    """The stub must find this interpreter's prefix (PATH) and its own libpython, in the folder `library`.

    With only the first it loads the system's libpython over another release's standard library. What
    LD_LIBRARY_PATH says already stays: in containers it names the driver's folder.
    """
    given = os.environ.get("LD_LIBRARY_PATH", "")
    return {
        "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ.get('PATH', '')}",
        "LD_LIBRARY_PATH": os.pathsep.join([str(library), *filter(None, [given])]),
        "PYTHONDONTWRITEBYTECODE": "1",
    }


def _library_folder(site: Site) -> Path:
    """A folder with libpython alone: the system's folder has other libraries, too, and a framework would take
    its cuDNN or its BLAS from there."""
    library = libpython.find(site.home)
    # Named by its place: hosts that share this home may have theirs elsewhere.
    folder = site.home.joinpath("libpython", *library.parent.parts[1:])
    _link(folder, library)
    return folder


def _backend_folder(site: Site) -> Path:
    """The wheel's Python backend with the stub of this interpreter, as links."""
    folder = site.home / "backends" / _python()
    wheel = _folder(site) / "pytriton" / "tritonserver"
    for source in (
        wheel / "backends" / "python" / "libtriton_python.so",
        wheel / "backends" / "python" / "triton_python_backend_utils.py",
        _stub(site),
    ):
        _link(folder / "python", source)
    return folder


def _link(folder: Path, target: Path) -> None:
    """Make a link to `target` in `folder`. A right link is not touched and a wrong one is replaced in one
    step, because servers of this home start at the same time."""
    folder.mkdir(parents=True, exist_ok=True)
    link = folder / target.name
    if not link.is_symlink() or link.readlink() != target:
        fresh = folder / f".{target.name}.{os.getpid()}"
        fresh.unlink(missing_ok=True)
        fresh.symlink_to(target)
        fresh.replace(link)


def _folder(site: Site) -> Path:
    return site.home / "tritonserver"


def _binary(site: Site) -> Path:
    return _folder(site) / "pytriton" / "tritonserver" / "bin" / "tritonserver"


def _stub(site: Site) -> Path:
    stubs = _folder(site) / "pytriton" / "tritonserver" / "python_backend_stubs"
    return stubs / _python() / "triton_python_backend_stub"


def _python() -> str:
    return f"{sys.version_info.major}.{sys.version_info.minor}"
