"""The one way to run a program that takes its time: a list of arguments, never a shell; its own process
group, which dies with us; its output in a log file."""

from __future__ import annotations

import contextlib
import logging
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import IO

from servegrid.domain.errors import StepError
from servegrid.host import process_environment, supervise
from servegrid.host.files import writing

log = logging.getLogger("servegrid")

output = logging.getLogger("servegrid_output")
"""What running programs write, at DEBUG. It is no child of `servegrid`, whose lines Prefect stores: a verbose
server writes thousands of lines a second."""

LOOK_S = 0.1
TAIL_LINES = 12
KILLED = 128 + signal.SIGKILL


def run(
    args: Sequence[str],
    *,
    log_path: Path,
    timeout_s: float,
    env: Mapping[str, str] | None = None,
    repeat: str | None = None,
    level: int = logging.DEBUG,
    hidden: re.Pattern[str] | None = None,
    container: str = "-",
) -> None:
    """Run a program to its end; each line of its output goes to the log file, and to the logger at `level`
    unless `hidden` matches its start: then at DEBUG.
    A docker CLI's `container` is gone when it ends, however it does.

    Raises:
        StepError: it failed, was killed or ran past `timeout_s`; holds the last lines, the log's
            path and the command (`repeat`, by default `args`) that does it again.
    """
    log_path.parent.mkdir(parents=True, exist_ok=True)
    command = repeat or shlex.join(args)
    timed_out = threading.Event()
    with writing(log_path), log_path.open("a", encoding="utf-8") as file:
        file.write(f"$ {shlex.join(args)}\n")
        file.flush()
        process = _popen(args, stdout=subprocess.PIPE, env=env, grace_s=2.0, container=container)

        def expire() -> None:
            timed_out.set()
            process.terminate()

        timer = threading.Timer(timeout_s, expire)
        timer.daemon = True  # an interrupt may come between any two lines: it must not keep us alive
        try:
            timer.start()
            assert process.stdout is not None
            for raw in process.stdout:
                line = raw.decode(errors="replace").rstrip()
                file.write(line + "\n")
                file.flush()
                known = hidden is not None and hidden.match(line)
                log.log(logging.DEBUG if known else level, "  %s", line)
            code = process.wait()
        finally:
            timer.cancel()
            _release(process)
    if timed_out.is_set():
        raise StepError(f"ran past its limit of {timeout_s:g} s", log=str(log_path), command=command)
    if code == KILLED:
        raise StepError(f"was killed (out of memory?)\n{tail(log_path)}", log=str(log_path), command=command)
    if code != 0:
        raise StepError(
            f"ended with exit code {code}\n{tail(log_path)}",
            log=str(log_path),
            command=command,
            code=code,
        )


@contextmanager
def running(
    args: Sequence[str],
    *,
    log_path: Path,
    env: Mapping[str, str] | None = None,
    stop_s: float = 10.0,
    shm_prefix: str = "-",
    container: str = "-",
) -> Iterator[subprocess.Popen[bytes]]:
    """A program that runs for as long as the block does; stopped, and killed after `stop_s`.

    The shared memory that it has left, and the `container` of a docker CLI, are removed.
    """
    log_path.parent.mkdir(parents=True, exist_ok=True)
    with log_path.open("ab") as file:
        process = _popen(
            args, stdout=file, env=env, grace_s=stop_s, shm_prefix=shm_prefix, container=container
        )
        with _followed(log_path):  # also what it writes while it stops
            try:
                yield process
            finally:
                ended_before = process.poll() is not None
                process.terminate()
                with contextlib.suppress(subprocess.TimeoutExpired):
                    process.wait(timeout=stop_s + 2.0)
                _release(process)
                if process.returncode == KILLED and not ended_before:
                    log.warning("%s did not stop in %g s and was killed", Path(args[0]).name, stop_s)


def stat(pid: int) -> list[str]:
    """What the kernel tells of a process, its state first: the third field of proc_pid_stat(5) and those
    after it. Raises OSError where it is gone."""
    # The second is its name in brackets, in which anything may stand.
    return Path(f"/proc/{pid}/stat").read_text(errors="replace").rpartition(")")[2].split()


def tail(log_path: Path, lines: int = TAIL_LINES) -> str:
    """The last lines of a log."""
    try:
        return "\n".join(log_path.read_text(errors="replace").splitlines()[-lines:])
    except OSError:
        return ""


@contextmanager
def _followed(log_path: Path) -> Iterator[None]:
    """The lines that are added to a log while the block runs go to `output`, if it takes DEBUG."""
    if not output.isEnabledFor(logging.DEBUG):
        yield
        return
    ended, start = threading.Event(), log_path.stat().st_size
    thread = threading.Thread(target=_follow, args=(log_path, start, ended), daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()


def _follow(log_path: Path, start: int, ended: threading.Event) -> None:
    with log_path.open("rb") as file:
        file.seek(start)
        rest, last = b"", False
        while not last:
            last = ended.wait(LOOK_S)
            *lines, rest = (rest + file.read()).split(b"\n")
            for line in (*lines, rest) if last and rest else lines:
                output.debug("  %s", line.decode(errors="replace").rstrip())


class _Supervised(subprocess.Popen[bytes]):
    """A supervisor, with the folder of its command's temporary files."""

    temporary: str


def _popen(
    args: Sequence[str],
    *,
    stdout: int | IO[bytes],
    env: Mapping[str, str] | None,
    grace_s: float,
    shm_prefix: str = "-",
    container: str = "-",
) -> _Supervised:
    given = {**process_environment.DEFAULTS, **(env or {})}
    log.debug("$ %s", shlex.join(args))
    log.debug("  environment: %s", shlex.join(f"{name}={value}" for name, value in given.items()))
    temporary = tempfile.mkdtemp(prefix="servegrid-")
    words = [str(grace_s), shm_prefix, container, temporary]
    process = _Supervised(
        [sys.executable, "-S", "-E", supervise.__file__, *words, *args],
        stdin=subprocess.PIPE,
        stdout=stdout,
        stderr=subprocess.STDOUT,
        env={**process_environment.DEFAULTS, **os.environ, **(env or {}), "TMPDIR": temporary},
        start_new_session=True,
    )
    process.temporary = temporary
    return process


def _release(process: _Supervised) -> None:
    """Let go of the supervisor: whatever still runs under it is killed."""
    assert process.stdin is not None
    process.stdin.close()
    process.wait()
    shutil.rmtree(process.temporary, ignore_errors=True)  # the supervisor did, unless it was killed
