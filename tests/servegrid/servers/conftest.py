"""Servers that run already, started as a stranger would start them."""

from __future__ import annotations

import importlib.util
import os
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from tritonclient.utils import InferenceServerException

from servegrid.domain.server import ServerChoice
from servegrid.host import proc
from servegrid.servers import embedded, local
from servegrid.servers.connection import connect
from servegrid.servers.launch import free_ports
from servegrid.store.other_environment import CODE
from servegrid.store.site import Site

PRIVATE_SHM = ("unshare", "--mount", "sh", "-c", 'mount -t tmpfs none /dev/shm && exec "$@"', "sh")


class Certificates(NamedTuple):
    """PEM files of a server that says it is localhost; it is its own authority."""

    certificate: Path
    key: Path


@pytest.fixture(scope="session")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    folder = tmp_path_factory.mktemp("tls")
    made = Certificates(folder / "server.pem", folder / "server.key")
    subject = ("-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost")
    kind = ("-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "1")
    files = ("-out", str(made.certificate), "-keyout", str(made.key))
    subprocess.run(["openssl", "req", *kind, *subject, *files], check=True, capture_output=True, timeout=30)
    return made


@pytest.fixture(scope="session")
def stranger(site: Site) -> Callable[..., Any]:
    """`with stranger(folder, *options, choice=...) as port`: the wheel's server, which answers a client of
    that choice; `within` are the words that start it."""
    if problems := embedded.problems(site):
        pytest.skip("; ".join(problems))

    @contextmanager
    def serving(
        folder: Path, *options: str, choice: Callable[[int], ServerChoice], within: tuple[str, ...] = ()
    ) -> Iterator[ServerChoice]:
        (folder / "repository").mkdir(exist_ok=True)
        (port,) = free_ports(1)
        args = [
            *within,
            str(embedded._binary(site)),
            f"--model-repository={folder / 'repository'}",
            f"--backend-directory={embedded._backend_folder(site)}",
            *("--allow-http=false", "--allow-metrics=false", "--disable-auto-complete-config"),
            *("--grpc-address=127.0.0.1", f"--grpc-port={port}", *options),
        ]
        log = folder / "server.log"
        with proc.running(args, log_path=log, env=local.environment(local.library_folder(site))) as process:
            deadline = time.monotonic() + 30.0
            while not _ready(choice(port)):
                assert process.poll() is None and time.monotonic() < deadline, proc.tail(log)
                time.sleep(0.05)
            yield choice(port)

    return serving


def _ready(choice: ServerChoice) -> bool:
    with connect(choice.address, choice.channel) as client:
        try:
            return bool(client.is_server_ready(client_timeout=2.0))
        except InferenceServerException:
            return False


@pytest.fixture(scope="session")
def private_shm() -> tuple[str, ...]:
    """The words that start a program with a /dev/shm of its own."""
    if os.geteuid() != 0:
        pytest.skip("a /dev/shm of one's own needs root")
    return PRIVATE_SHM


TRITON = "nvcr.io/nvidia/tritonserver:"


@pytest.fixture(scope="module")
def engine(site: Site, private_shm: Any, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """The stand-in for the docker engine, and DOCKER_HOST for it. It has no image, and can pull Triton's:

    24.10 is the wheel's server, 26.10 one that wants its clients' shared memory allowed, 25.02 one that
    ends at once; and `servegrid:1`, whose Python is the one here and whose entry has something to say first,
    as NVIDIA's have, and `bare:1`, whose Python has nothing installed.
    """
    if not shutil.which("docker"):
        pytest.skip("no docker CLI here (Debian: docker.io)")
    if problems := embedded.problems(site):
        pytest.skip("; ".join(problems))
    folder = tmp_path_factory.mktemp("engine")
    spec = importlib.util.spec_from_file_location("stand_in_engine", Path(__file__).with_name("engine.py"))
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)

    def program(image: str, command: list[str], ports: dict[int, int]) -> tuple[list[str], dict[str, str]]:
        if not image.startswith(TRITON):
            assert command[0] == "python3"
            bare = ["-S"] if image == "localhost/bare:1" else []
            entry = ["sh", "-c", 'echo "== an image ==" && exec "$@"', "sh"]
            return [*entry, sys.executable, *bare, *command[1:]], {}
        if image.startswith(f"{TRITON}25.02"):
            return ["sh", "-c", "echo 'no kernel image is available' >&2; exit 3"], {}
        newer = image.startswith(f"{TRITON}26.10")
        assert command[0] == "tritonserver"
        if command[1:] == ["--help"] and newer:
            return ["echo", "--allow-client-shm <boolean>"], {}
        options = [option for option in command[1:] if not (newer and "client-shm" in option)]
        here = zip(("http", "grpc", "metrics"), (8000, 8001, 8002), strict=True)
        places = [f"--{kind}-port={ports[inside]}" for kind, inside in here if ports]
        backends = f"--backend-directory={embedded._backend_folder(site)}"
        return [str(embedded._binary(site)), *options, backends, *places], local.environment(
            local.library_folder(site)
        )

    with (
        module.Engine(folder / "docker.sock", program, (tmp_path_factory.getbasetemp(), CODE)) as engine,
        pytest.MonkeyPatch.context() as patch,
    ):
        engine.registry |= {f"{TRITON}{release}-py3" for release in ("24.10", "25.02", "26.10")}
        engine.registry |= {"localhost/servegrid:1", "localhost/bare:1"}
        threading.Thread(target=engine.serve_forever, daemon=True).start()
        patch.setenv("DOCKER_HOST", f"unix://{engine.path}")
        patch.setenv("DOCKER_CONFIG", str(folder))
        yield engine
        engine.shutdown()
        for container in list(engine.containers.values()):
            engine.remove(container)
