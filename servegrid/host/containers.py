"""Programs in containers, by the docker CLI: how one is started, and what dead owners have left.

A container sees the host's files that it is given at the places where they lie, runs as this user, and shares
this host's memory. It is labelled with the process that it belongs to: a container outlives its CLI.
"""

from __future__ import annotations

import contextlib
import csv
import io
import logging
import os
import subprocess
import uuid
from collections.abc import Sequence
from pathlib import Path

from pydantic import Field

from servegrid.domain.errors import StepError
from servegrid.domain.values import Value
from servegrid.host import proc

log = logging.getLogger("servegrid")

LABEL = "servegrid.owner"
ASK_S = 60.0
PULL_S = 3600.0


class Container(Value):
    """What one container is given. `files`, which may be folders, are read-only, each at its own place
    inside, and so is `output`, which is not; `ports` inside -> on this host's loopback: without any it has no
    network. `gpu` is a card's UUID. One that a person starts has no name of ours, and no owner."""

    image: str
    name: str | None = None
    files: tuple[Path, ...] = ()
    output: Path | None = None
    env: dict[str, str] = Field({})
    ports: dict[int, int] = Field({})
    gpu: str | None = None


def argv(container: Container, command: Sequence[str]) -> list[str]:
    """The command that runs another one in a container, in the foreground: it gets our signals, its output is
    ours, and so is its exit code."""
    words = ["docker", "run", "--rm", "--init", "--pull", "never"]
    words += ["--name", container.name, "--label", f"{LABEL}={owner()}"] if container.name else []
    words += ["--user", f"{os.getuid()}:{os.getgid()}", "--ipc", "host"]
    words += ["--ulimit", "memlock=-1", "--ulimit", "stack=67108864"]  # as NVIDIA's images ask for
    for path in dict.fromkeys(container.files):
        words += ["--mount", _mount(path, "readonly")]
    words += ["--mount", _mount(container.output)] if container.output else []
    words += [] if container.ports else ["--network", "none"]
    for inside, port in container.ports.items():
        words += ["--publish", f"127.0.0.1:{port}:{inside}"]
    for name, value in {"HOME": "/tmp", **container.env}.items():  # noqa: S108  # inside
        words += ["--env", f"{name}={value}"]
    words += ["--gpus", f"device={container.gpu}"] if container.gpu else []
    return [*words, container.image, *command]


def _mount(path: Path, *more: str) -> str:
    """A path in its own place, as docker reads it: a line of CSV, for a path may have a comma."""
    line = io.StringIO()
    csv.writer(line, lineterminator="").writerow(("type=bind", f"source={path}", f"target={path}", *more))
    return line.getvalue()


def fresh_name() -> str:
    """A container's name that no other has."""
    return f"servegrid-{uuid.uuid4().hex[:8]}"


def pull(image: str, log_path: Path) -> None:
    """Have an image on this host; its download is shown and logged.

    Raises:
        StepError: the registry or the engine says no.
    """
    with contextlib.suppress(StepError):
        ask("image", "inspect", "--format", "{{.Id}}", image)
        return
    try:
        proc.run(["docker", "pull", image], log_path=log_path, timeout_s=PULL_S, level=logging.INFO)
    except StepError as error:
        raise StepError(
            f"{image} could not be pulled: {error}\n(its name? a `docker login` for its registry?)",
            log=error.log,
            command=error.command,
        ) from error


def remove(name: str) -> None:
    """Remove a container, running or not; one that is gone already is no error."""
    with contextlib.suppress(StepError):
        ask("rm", "--force", "--volumes", name)


def remove_dead() -> list[str]:
    """Remove the containers whose owner, a process of this host, has died; their names."""
    form = f'{{{{.Names}}}} {{{{.Label "{LABEL}"}}}}'
    listed = ask("ps", "--all", "--filter", f"label={LABEL}", "--format", form)
    gone = [name for name, _, label in (line.partition(" ") for line in listed.splitlines()) if _dead(label)]
    for name in gone:
        log.info("removing container %s, whose owner has died", name)
        remove(name)
    return gone


def pid(name: str) -> int | None:
    """The process of a running container, by its number on the engine's host."""
    with contextlib.suppress(StepError, ValueError):
        return int(ask("inspect", "--format", "{{.State.Pid}}", name)) or None
    return None


def ask(*words: str) -> str:
    """The output of one docker command.

    Raises:
        StepError: there is no docker CLI, or it failed.
    """
    return _answer(_docker(words))


def ask_inside(container: Container, command: Sequence[str]) -> str:
    """The output of a short command in a container.

    Raises:
        StepError: there is no docker CLI, or the command failed or took too long.
    """
    return _answer(_inside(container, command))


def output(container: Container, command: Sequence[str]) -> str:
    """All that a short command in a container says, whatever its exit code."""
    done = _inside(container, command)
    return done.stdout + done.stderr


def _inside(container: Container, command: Sequence[str]) -> subprocess.CompletedProcess[str]:
    name = fresh_name()
    try:
        return _docker(argv(container.model_copy(update={"name": name}), command)[1:])
    except StepError:
        remove(name)  # it outlives the CLI that did not wait for it
        raise


def _answer(done: subprocess.CompletedProcess[str]) -> str:
    if done.returncode:
        raise StepError(f"docker {done.args[1]}: {done.stderr.strip()}")
    return str(done.stdout).strip()


def _docker(words: Sequence[str]) -> subprocess.CompletedProcess[str]:
    try:
        return subprocess.run(["docker", *words], capture_output=True, text=True, timeout=ASK_S, check=False)
    except FileNotFoundError:
        raise StepError("there is no `docker` command here: install Docker's CLI") from None
    except subprocess.TimeoutExpired:
        raise StepError(f"docker {words[0]}: the engine did not answer within {ASK_S:g} s") from None


def owner(process: int | None = None) -> str:
    """A process, by namespace, number and start time: numbers are used again."""
    number = process or os.getpid()
    start = proc.stat(number)[19]
    return f"{_namespace()}/{number}/{start}"


def _dead(label: str) -> bool:
    """Whether an owner has ended; one that we cannot see, in another container perhaps, has not."""
    namespace, _, rest = label.partition("/")
    number = rest.partition("/")[0]
    if namespace != _namespace() or not number.isdigit():
        return False
    try:
        return owner(int(number)) != label
    except OSError:
        return True


def _namespace() -> str:
    boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    return f"{boot}.{Path('/proc/self/ns/pid').readlink()}"
