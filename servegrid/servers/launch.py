"""Starts a tritonserver as a process of ours: its ports, its options, the wait until it is ready."""

from __future__ import annotations

import contextlib
import http.client
import json
import logging
import socket
import subprocess
import time
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import NamedTuple

import tritonclient.grpc as triton
from tritonclient.utils import InferenceServerException

from servegrid.domain.errors import StepError
from servegrid.host import proc
from servegrid.servers.base import Running
from servegrid.servers.control import unload_all

KINDS = ("http", "grpc", "metrics")
PORT_TAKEN = "already in use"
"""In tritonserver's message about a port that it cannot listen on."""
READY_TIMEOUT_S = 2.0
UNLOAD_S = 10.0
STOP_S = 10.0


class Start(NamedTuple):
    """Free loopback ports by kind, and the start of the shared memory's names, of one server."""

    ports: dict[str, int]
    shm_prefix: str

    @classmethod
    def fresh(cls) -> Start:
        return cls(
            dict(zip(KINDS, free_ports(len(KINDS)), strict=True)), f"servegrid_{uuid.uuid4().hex[:8]}_"
        )

    def options(self, repository: Path) -> list[str]:
        """The options of tritonserver that every provider gives."""
        return [
            f"--model-repository={repository}",
            f"--id={self.shm_prefix}",
            "--model-control-mode=explicit",
            "--disable-auto-complete-config",
            f"--backend-config=python,shm-region-prefix-name={self.shm_prefix}",
            "--exit-timeout-secs=5",
            *(["--log-verbose=1"] if proc.output.isEnabledFor(logging.DEBUG) else []),
        ]


@contextmanager
def started(
    args: Sequence[str],
    start: Start,
    *,
    provider: str,
    log_path: Path,
    ready_s: float,
    env: Mapping[str, str] | None = None,
    container: str = "-",
    pid: Callable[[subprocess.Popen[bytes]], int | None] = lambda process: process.pid,
) -> Iterator[Running]:
    """The server that `args` runs in the foreground, once it is ready; stopped when the block ends.

    Raises:
        StepError: it ended or was not ready within `ready_s`.
    """
    url = f"127.0.0.1:{start.ports['grpc']}"
    with proc.running(
        args, log_path=log_path, env=env, stop_s=STOP_S, shm_prefix=start.shm_prefix, container=container
    ) as process:
        version = _wait_ready(process, start, log_path, ready_s)
        try:
            yield Running(
                grpc_url=url,
                http_url=f"127.0.0.1:{start.ports['http']}",
                version=version,
                shm_prefix=start.shm_prefix,
                log=str(log_path),
                provider=provider,
                pid=pid(process),
            )
        finally:
            if process.poll() is None:
                unload_all(url, timeout_s=UNLOAD_S)


def shared_memory_options(help_text: str) -> tuple[str, ...]:
    """The option that lets clients use shared memory, if the text of `tritonserver --help` has it: newer
    servers need it, older ones refuse it (triton-inference-server/server, pull request 8739)."""
    return ("--allow-client-shm=true",) if "--allow-client-shm" in help_text else ()


def free_ports(count: int) -> list[int]:
    """Different ports that nothing listens on; all are held until the last is found."""
    with ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(count)]
        for entry in sockets:
            entry.bind(("127.0.0.1", 0))
        return [entry.getsockname()[1] for entry in sockets]


def _wait_ready(process: subprocess.Popen[bytes], start: Start, log_path: Path, ready_s: float) -> str:
    """Wait until the server is ready by both protocols; returns its version."""
    deadline = time.monotonic() + ready_s
    with triton.InferenceServerClient(f"127.0.0.1:{start.ports['grpc']}") as client:
        while time.monotonic() < deadline:
            if process.poll() is not None:
                raise StepError(
                    f"tritonserver ended before it was ready (exit code {process.returncode})\n"
                    f"{proc.tail(log_path)}",
                    log=str(log_path),
                )
            with contextlib.suppress(
                InferenceServerException, http.client.HTTPException, OSError, ValueError
            ):
                if client.is_server_ready(client_timeout=READY_TIMEOUT_S):
                    found = client.get_server_metadata(client_timeout=READY_TIMEOUT_S)
                    # Another server may have taken a port: then that one answers there.
                    if found.name == _name_by_http(start.ports["http"]) == start.shm_prefix:
                        return str(found.version)
            time.sleep(0.02)
    raise StepError(f"tritonserver was not ready within {ready_s:g} s", log=str(log_path))


def _name_by_http(port: int) -> str:
    """The name of the server on this port, without the environment's proxy."""
    with contextlib.closing(
        http.client.HTTPConnection("127.0.0.1", port, timeout=READY_TIMEOUT_S)
    ) as connection:
        connection.request("GET", "/v2")
        return str(json.load(connection.getresponse())["name"])
