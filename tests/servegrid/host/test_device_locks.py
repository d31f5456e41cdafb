"""The locks of this host's devices."""

from __future__ import annotations

import os
import select
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from servegrid.host import device_locks
from servegrid.host.cards import gpu_names
from servegrid.host.device_locks import device_lock
from servegrid.host.stage_timer import collecting_waits

HOLDER = """
import os, pathlib, sys
from servegrid.host import device_locks
from servegrid.host.cards import card_uuid
from servegrid.host.device_locks import device_lock
card_uuid()  # another user may not be able to read the interpreter's modules
device_locks.LOCKS = pathlib.Path(sys.argv[1])
os.setuid(int(sys.argv[4]))
print("asking", flush=True)
with device_lock(sys.argv[2], exclusive=sys.argv[3] == "exclusive"):
    print("held", flush=True)
    sys.stdin.read()
"""


@pytest.fixture
def folder(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The folder of the locks, in one that every user may enter, as /tmp is."""
    with tempfile.TemporaryDirectory() as name:
        Path(name).chmod(0o1777)
        locks = Path(name) / "locks"
        monkeypatch.setattr(device_locks, "LOCKS", locks)
        yield locks


@pytest.fixture
def processes() -> Iterator[list[subprocess.Popen[str]]]:
    started: list[subprocess.Popen[str]] = []
    yield started
    for process in started:
        process.kill()
        process.communicate()


def start(folder: Path, device: str, how: str, user: int = os.getuid()) -> subprocess.Popen[str]:
    """A process that asks for the lock, and holds it until its input is closed."""
    process = subprocess.Popen(
        [sys.executable, "-c", HOLDER, str(folder), device, how, str(user)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "asking\n"
    return process


def held(process: subprocess.Popen[str]) -> bool:
    """Wait until the process says that it holds the lock."""
    assert process.stdout is not None
    return process.stdout.readline() == "held\n"


def waits(process: subprocess.Popen[str]) -> bool:
    """True if the process waits for the lock and does not get it within an ample time."""
    assert process.stdout is not None
    return not select.select([process.stdout], [], [], 0.4)[0] and process.poll() is None


@pytest.mark.parametrize(
    ("first", "second"), [("exclusive", "shared"), ("exclusive", "exclusive"), ("shared", "exclusive")]
)
def test_device_held_alone_is_held_by_nobody_else(
    folder: Path, processes: list[subprocess.Popen[str]], first: str, second: str
) -> None:
    processes.append(start(folder, "card", first))
    assert held(processes[0])
    processes.append(start(folder, "card", second))
    assert waits(processes[1])
    processes[0].communicate()  # closes its input: the block ends
    assert held(processes[1])


def test_builds_share_the_device(folder: Path, processes: list[subprocess.Popen[str]]) -> None:
    for _ in range(2):
        processes.append(start(folder, "card", "shared"))
    assert all(map(held, processes))


def test_builds_that_come_later_do_not_overtake_a_measurement_that_waits(
    folder: Path, processes: list[subprocess.Popen[str]]
) -> None:
    processes.append(start(folder, "card", "shared"))
    assert held(processes[0])
    processes.append(start(folder, "card", "exclusive"))
    assert waits(processes[1])
    processes.append(start(folder, "card", "shared"))
    assert waits(processes[2])
    processes[0].communicate()
    assert held(processes[1])
    assert waits(processes[2])
    processes[1].communicate()
    assert held(processes[2])


def test_a_second_profile_of_the_cpu_takes_the_cpus_lock(
    folder: Path, processes: list[subprocess.Popen[str]]
) -> None:
    if gpu_names():
        pytest.skip("this host has a card")
    processes.append(start(folder, "cpu", "exclusive"))
    assert held(processes[0])
    processes.append(start(folder, "cpu-with-another-environment", "exclusive"))
    assert waits(processes[1])


def test_each_card_of_a_host_has_its_own_lock_with_a_fake_driver(monkeypatch: pytest.MonkeyPatch) -> None:
    names = []
    for uuid in ("GPU-1", "GPU-2"):
        monkeypatch.setattr(device_locks, "card_uuid", lambda uuid=uuid: uuid)
        names += [device_locks._lock_name(profile) for profile in ("h100", "h100-with-tf-trt", "cpu")]
    assert names == ["GPU-1", "GPU-1", "cpu", "GPU-2", "GPU-2", "cpu"]


def test_lock_is_free_when_its_holder_was_killed(
    folder: Path, processes: list[subprocess.Popen[str]]
) -> None:
    processes.append(start(folder, "card", "exclusive"))
    assert held(processes[0])
    processes.append(start(folder, "card", "exclusive"))
    assert waits(processes[1])
    processes[0].kill()
    assert held(processes[1])


def test_lock_is_free_after_a_block_that_raised(folder: Path, processes: list[subprocess.Popen[str]]) -> None:
    with pytest.raises(ValueError, match="inside"), device_lock("card", exclusive=True):
        raise ValueError("inside")
    processes.append(start(folder, "card", "exclusive"))
    assert held(processes[0])


def test_waiting_for_the_device_is_logged(
    folder: Path,
    processes: list[subprocess.Popen[str]],
    caplog: pytest.LogCaptureFixture,
    wait_for: Callable[..., Any],
) -> None:
    caplog.set_level("INFO", "servegrid")
    with device_lock("card", exclusive=True):
        assert not caplog.messages
    processes.append(start(folder, "card", "exclusive"))
    assert held(processes[0])

    def end_the_holder() -> None:
        try:
            wait_for(lambda: caplog.messages, 20)
        finally:
            processes[0].kill()

    other = threading.Thread(target=end_the_holder)
    other.start()
    with collecting_waits() as found, device_lock("card", exclusive=False):
        assert caplog.messages == ["waiting for card: another campaign builds or measures there"]
    other.join()
    (wait,) = found
    assert wait.what == "card, shared"
    assert wait.seconds > 0


@pytest.mark.check
@pytest.mark.skipif(os.geteuid() != 0, reason="becoming another user needs root")
def test_users_of_one_host_share_the_lock(folder: Path, processes: list[subprocess.Popen[str]]) -> None:
    with device_lock("card", exclusive=False):
        pass
    processes.append(start(folder, "card", "shared", user=65534))
    assert held(processes[0])
