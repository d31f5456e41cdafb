"""A stand-in for the docker engine: its API on a unix socket, as far as `docker run`, `pull`, `ps`, `inspect`
and `rm` use it. It records its requests; a container is a process of this host, with the mounts, the
shared memory, the network, the user and the environment that the request names.

https://docs.docker.com/reference/api/engine/version/v1.47
"""

from __future__ import annotations

import json
import os
import re
import shlex
import signal
import socketserver
import struct
import subprocess
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

API = "1.47"
HIDE_SHM = "mount -t tmpfs none /dev/shm"


class Container:
    """A created container; `process` once it was started."""

    def __init__(self, id_: str, name: str, body: dict[str, Any]) -> None:
        self.id, self.name, self.body = id_, name, body
        self.process: subprocess.Popen[bytes] | None = None
        self.started, self.removed = threading.Event(), threading.Event()

    @property
    def running(self) -> bool:
        return self.process is not None and self.process.poll() is None

    @property
    def exit_code(self) -> int:
        code = self.process.poll() if self.process else None
        return 0 if code is None else code if code >= 0 else 128 - code

    def kill(self, number: int) -> None:
        if self.running and self.process:
            with suppress(ProcessLookupError):
                os.killpg(self.process.pid, number)


class Engine(socketserver.ThreadingMixIn, socketserver.UnixStreamServer):
    """`images` are present; `registry` can be pulled. `program` makes the command and the
    environment of a container from its image, command and ports (inside -> here). What lies below `hidden` is
    seen in a container only where it was mounted."""

    daemon_threads = True

    def __init__(
        self,
        path: Path,
        program: Callable[[str, list[str], dict[int, int]], tuple[Sequence[str], Mapping[str, str]]],
        hidden: Sequence[Path],
    ) -> None:
        super().__init__(str(path), Api)
        self.path, self.program, self.hidden = path, program, hidden
        self.images: set[str] = set()
        self.registry: set[str] = set()
        self.containers: dict[str, Container] = {}
        self.created: list[dict[str, Any]] = []
        self.requests: list[str] = []

    def find(self, name: str) -> Container | None:
        return next((c for c in self.containers.values() if name in (c.id, c.name)), None)

    def start(self, container: Container) -> None:
        """Run the container's command with its mounts only, outer folders before those inside them."""
        body, host = container.body, container.body["HostConfig"]
        ports = {
            int(k.split("/")[0]): int(v[0]["HostPort"]) for k, v in (host.get("PortBindings") or {}).items()
        }
        command, env = self.program(
            body["Image"], [*(body.get("Entrypoint") or []), *(body.get("Cmd") or [])], ports
        )
        steps = [] if host["IpcMode"] == "host" else [HIDE_SHM]
        steps += ["mount -t tmpfs none /mnt"]
        mounts = sorted(host.get("Mounts") or [], key=lambda m: len(Path(m["Target"]).parts))
        for number, mount in enumerate(mounts):
            steps += [
                _place(mount["Source"], f"/mnt/{number}"),
                f"mount --bind {shlex.quote(mount['Source'])} /mnt/{number}",
            ]
        steps += [f"mount -t tmpfs none {shlex.quote(str(folder))}" for folder in self.hidden]
        for number, mount in enumerate(mounts):
            target = shlex.quote(mount["Target"])
            steps += [_place(mount["Source"], target), f"mount --bind /mnt/{number} {target}"]
            if mount.get("ReadOnly"):
                steps.append(f"mount -o remount,bind,ro {target}")
        user, _, group = body["User"].partition(":")
        as_user = f"setpriv --reuid {user} --regid {group} --clear-groups"
        script = " && ".join([*steps, f'exec {as_user} "$@"'])
        alone = ["--net"] if host["NetworkMode"] == "none" else []
        container.process = subprocess.Popen(
            ["unshare", "--mount", *alone, "sh", "-c", script, "sh", *command],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            env={"PATH": os.environ["PATH"], **dict(e.split("=", 1) for e in body["Env"] or []), **env},
            start_new_session=True,
        )
        container.started.set()

    def remove(self, container: Container) -> None:
        container.kill(signal.SIGKILL)
        if container.process:
            container.process.wait()
        self.containers.pop(container.id, None)
        container.removed.set()


def _place(source: str, target: str) -> str:
    """The step that makes what a bind mount goes onto."""
    return (
        f"mkdir -p {target}" if Path(source).is_dir() else f"mkdir -p $(dirname {target}) && touch {target}"
    )


class Api(BaseHTTPRequestHandler):
    """One connection of the CLI."""

    server: Engine
    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        self._answer()

    do_POST = do_DELETE = do_HEAD = do_GET  # noqa: N815  # as http.server calls them

    def log_message(self, *_: object) -> None:
        return

    def address_string(self) -> str:
        return "cli"

    def _answer(self) -> None:
        length = int(self.headers.get("Content-Length") or 0)
        self.content = json.loads(self.rfile.read(length)) if length else {}
        url = urlsplit(self.path)
        self.query = {name: values[0] for name, values in parse_qs(url.query).items()}
        path = re.sub(r"^/v[\d.]+", "", url.path)
        self.server.requests.append(f"{self.command} {path}")
        for method, pattern, handle in ROUTES:
            if method == self.command and (found := re.fullmatch(pattern, path)):
                handle(self, *found.groups())
                return
        self._json(404, {"message": f"the stand-in has no {self.command} {path}"})

    def _json(self, status: int, body: Any = None) -> None:
        data = b"" if body is None else json.dumps(body).encode()
        self.send_response(status)
        self.send_header("Api-Version", API)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(data)

    def _stream(self, status: int = 200) -> None:
        """An answer whose end is the connection's."""
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Connection", "close")
        self.end_headers()
        self.wfile.flush()
        self.close_connection = True

    def ping(self) -> None:
        self._json(200)

    def version(self) -> None:
        self._json(200, {"Version": "0-stand-in", "ApiVersion": API, "MinAPIVersion": "1.24", "Os": "linux"})

    def image(self, name: str) -> None:
        if name in self.server.images:
            self._json(200, {"Id": "sha256:0", "RepoTags": [name]})
        else:
            self._json(404, {"message": f"No such image: {name}"})

    def pull(self) -> None:
        name = f"{self.query['fromImage']}:{self.query['tag']}"
        if name not in self.server.registry:
            self._json(404, {"message": f"manifest for {name} not found: manifest unknown"})
            return
        self._stream()
        for status in ("Pulling fs layer", "Download complete", "Pull complete"):
            line = {"status": status, "progressDetail": {}, "id": "0123456789ab"}
            self.wfile.write(json.dumps(line).encode() + b"\r\n")
        self.server.images.add(name)

    def create(self) -> None:
        if self.content["Image"] not in self.server.images:
            self._json(404, {"message": f"No such image: {self.content['Image']}"})
            return
        id_ = os.urandom(32).hex()
        self.server.created.append(self.content)
        self.server.containers[id_] = Container(id_, self.query.get("name", id_[:12]), self.content)
        self._json(201, {"Id": id_, "Warnings": []})

    def attach(self, name: str) -> None:
        """Output as frames of one stream: type, length, data; the connection is no HTTP any more."""
        container = self._container(name)
        if not container:
            return
        self.wfile.write(
            b"HTTP/1.1 101 UPGRADED\r\nContent-Type: application/vnd.docker.multiplexed-stream\r\n"
            b"Connection: Upgrade\r\nUpgrade: tcp\r\n\r\n"
        )
        self.close_connection = True
        container.started.wait(30.0)
        assert container.process and container.process.stdout
        with suppress(BrokenPipeError):
            while data := container.process.stdout.read1(65536):  # type: ignore[attr-defined]  # it is buffered
                self.wfile.write(struct.pack(">BxxxL", 1, len(data)) + data)

    def start(self, name: str) -> None:
        if container := self._container(name):
            self.server.start(container)
            self._json(204)

    def wait(self, name: str) -> None:
        """The CLI reads the head of the answer at once, and the exit code when there is one."""
        if container := self._container(name):
            self._stream()
            container.started.wait(30.0)
            if container.process:
                container.process.wait()
            if container.body["HostConfig"]["AutoRemove"]:
                self.server.remove(container)
            self.wfile.write(json.dumps({"StatusCode": container.exit_code}).encode())

    def kill(self, name: str) -> None:
        if container := self._container(name):
            number = self.query.get("signal", "KILL")
            container.kill(signal.Signals[f"SIG{number.removeprefix('SIG')}"])
            self._json(204)

    def inspect(self, name: str) -> None:
        if container := self._container(name):
            state = {"Pid": container.process.pid if container.process and container.running else 0}
            self._json(200, {"Id": container.id, "Name": f"/{container.name}", "State": state})

    def delete(self, name: str) -> None:
        if container := self._container(name):
            self.server.remove(container)
            self._json(204)

    def list(self) -> None:
        (label,) = json.loads(self.query["filters"])["label"]
        found = [c for c in self.server.containers.values() if label in (c.body["Labels"] or {})]
        entries = [
            {"Id": c.id, "Names": [f"/{c.name}"], "Labels": c.body["Labels"], "Created": int(time.time())}
            for c in found
        ]
        self._json(200, entries)

    def _container(self, name: str) -> Container | None:
        container = self.server.find(name)
        if not container:
            self._json(404, {"message": f"No such container: {name}"})
        return container


ROUTES: list[tuple[str, str, Callable[..., None]]] = [
    ("HEAD", "/_ping", Api.ping),
    ("GET", "/_ping", Api.ping),
    ("GET", "/version", Api.version),
    ("GET", "/images/(.+)/json", Api.image),
    ("POST", "/images/create", Api.pull),
    ("POST", "/containers/create", Api.create),
    ("POST", "/containers/([^/]+)/attach", Api.attach),
    ("POST", "/containers/([^/]+)/start", Api.start),
    ("POST", "/containers/([^/]+)/wait", Api.wait),
    ("POST", "/containers/([^/]+)/kill", Api.kill),
    ("GET", "/containers/([^/]+)/json", Api.inspect),
    ("DELETE", "/containers/([^/]+)", Api.delete),
    ("GET", "/containers/json", Api.list),
]
