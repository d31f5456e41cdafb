"""The tritonserver binary of the `nvidia-pytriton` wheel, started on this host.

The wheel lies in a folder of its own (`servegrid doctor --install-server`), without its Python
dependencies, which would hold NumPy back. It has the Python backend only.
"""

from __future__ import annotations

import contextlib
import os
import platform
import shutil
import socket
import subprocess
import sys
import sysconfig
import time
import uuid
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import tritonclient.grpc as triton
from tritonclient.utils import InferenceServerException

from tasks.core import proc
from tasks.core.errors import StepError
from tasks.core.site import Site
from tasks.servers.base import Running
from tasks.servers.control import unload_all

WHEEL = "nvidia-pytriton==0.7.0"
TRITON_RELEASE = "24.10"  # its server says 2.51.0
BACKENDS: tuple[str, ...] = ("python",)
READY_S = 30.0
UNLOAD_S = 10.0
STOP_S = 10.0


def problems(site: Site) -> list[str]:
    """Why the server cannot be started here, each with what to do."""
    found = []
    if platform.machine() != "x86_64" or sys.platform != "linux":
        found.append(f"tritonserver: the wheel is for Linux x86_64, not {sys.platform} {platform.machine()}")
    elif not _binary(site).is_file():
        found.append(f"tritonserver: not in {_folder(site)}; run `servegrid doctor --install-server`")
    elif not _stub(site).is_file():
        found.append(f"tritonserver: the wheel has no Python backend stub for Python {_python()}")
    if not libpython().is_file():
        found.append(f"libpython: {libpython()} is not there; {how_to_get_libpython()}")
    return found


def how_to_get_libpython() -> str:
    """What to do where it is not there."""
    return (
        "the Python backend needs the shared library "
        f"(Debian: libpython{_python()}; pyenv: PYTHON_CONFIGURE_OPTS=--enable-shared)"
    )


def install(site: Site) -> Path:
    """Put the wheel into its folder; returns the folder. Raises subprocess.CalledProcessError."""
    target = _folder(site)
    fresh = target.with_name(f"{target.name}.new")
    shutil.rmtree(fresh, ignore_errors=True)
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--target", str(fresh), WHEEL]
    subprocess.run(pip, check=True)
    shutil.rmtree(target, ignore_errors=True)
    fresh.rename(target)
    return target


@contextmanager
def serve(site: Site, repository: Path, log_path: Path) -> Iterator[Running]:
    """A ready server on `repository`, with no model loaded; gone when the block ends.

    Raises:
        StepError: it ended or was not ready within READY_S.
    """
    shm_prefix = f"servegrid_{uuid.uuid4().hex[:8]}_"
    with ExitStack() as stack:
        backends = _backend_folder(site)
        ports = _free_ports(3)
        args = [
            str(_binary(site)),
            f"--model-repository={repository}",
            f"--backend-directory={backends}",
            "--model-control-mode=explicit",
            "--disable-auto-complete-config",
            f"--backend-config=python,shm-region-prefix-name={shm_prefix}",
            *(f"--{kind}-address=127.0.0.1" for kind in ("http", "grpc", "metrics")),
            *(f"--{kind}-port={port}" for kind, port in zip(("http", "grpc", "metrics"), ports, strict=True)),
            "--exit-timeout-secs=5",
        ]
        process = stack.enter_context(
            proc.running(args, log_path=log_path, env=_environment(), stop_s=STOP_S, shm_prefix=shm_prefix)
        )
        url = f"127.0.0.1:{ports[1]}"
        version = _wait_ready(process, url, log_path)
        try:
            yield Running(
                grpc_url=url,
                http_url=f"127.0.0.1:{ports[0]}",
                version=version,
                shm_prefix=shm_prefix,
                log=str(log_path),
                provider="embedded",
                pid=process.pid,
            )
        finally:
            if process.poll() is None:
                unload_all(url, timeout_s=UNLOAD_S)


def _wait_ready(process: subprocess.Popen[bytes], url: str, log_path: Path) -> str:
    """The server's version, once it is ready."""
    deadline = time.monotonic() + READY_S
    with triton.InferenceServerClient(url) as client:
        while time.monotonic() < deadline:
            if process.poll() is not None:
                raise StepError(
                    f"tritonserver ended before it was ready (exit code {process.returncode})\n"
                    f"{proc.tail(log_path)}",
                    log=str(log_path),
                )
            try:
                if client.is_server_ready(client_timeout=2.0):
                    return str(client.get_server_metadata().version)
            except InferenceServerException:
                pass
            time.sleep(0.02)
    raise StepError(f"tritonserver was not ready within {READY_S:g} s", log=str(log_path))


def _environment() -> dict[str, str]:
    """The stub must find this interpreter's prefix (PATH) and its own libpython (LD_LIBRARY_PATH).

    With only the first it loads the system's libpython over another release's standard library. What
    LD_LIBRARY_PATH says already stays: in containers it names the driver's folder.
    """
    given = os.environ.get("LD_LIBRARY_PATH", "")
    return {
        "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ.get('PATH', '')}",
        "LD_LIBRARY_PATH": os.pathsep.join([str(libpython().parent), *filter(None, [given])]),
        "PYTHONDONTWRITEBYTECODE": "1",
    }


def _backend_folder(site: Site) -> Path:
    """The wheel's Python backend with the stub of this interpreter, as links."""
    folder = site.home / "backends" / _python()
    python = folder / "python"
    python.mkdir(parents=True, exist_ok=True)
    wheel = _folder(site) / "pytriton" / "tritonserver"
    for source in (
        wheel / "backends" / "python" / "libtriton_python.so",
        wheel / "backends" / "python" / "triton_python_backend_utils.py",
        _stub(site),
    ):
        link = python / source.name
        if not link.is_symlink() or link.readlink() != source:
            link.unlink(missing_ok=True)
            with contextlib.suppress(FileExistsError):  # another server of this home starts too
                link.symlink_to(source)
    return folder


def _free_ports(count: int) -> list[int]:
    """Ports that nothing listens on; all are held until the last is found, so they differ."""
    with ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(count)]
        for entry in sockets:
            entry.bind(("127.0.0.1", 0))
        return [entry.getsockname()[1] for entry in sockets]


def _folder(site: Site) -> Path:
    return site.home / "tritonserver"


def _binary(site: Site) -> Path:
    return _folder(site) / "pytriton" / "tritonserver" / "bin" / "tritonserver"


def _stub(site: Site) -> Path:
    stubs = _folder(site) / "pytriton" / "tritonserver" / "python_backend_stubs"
    return stubs / _python() / "triton_python_backend_stub"


def _python() -> str:
    return f"{sys.version_info.major}.{sys.version_info.minor}"


def libpython() -> Path:
    """This interpreter's shared library, which the Python backend's stub loads."""
    folder = Path(sysconfig.get_config_var("LIBDIR") or "/usr/lib")
    name = str(sysconfig.get_config_var("INSTSONAME") or f"libpython{_python()}.so.1.0")
    multiarch = folder / str(sysconfig.get_config_var("MULTIARCH") or "")
    return multiarch / name if (multiarch / name).is_file() else folder / name
