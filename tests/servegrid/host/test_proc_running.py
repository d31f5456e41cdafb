"""Programs that run for as long as a block: how they are stopped, and what they leave."""

from __future__ import annotations

import logging
import shlex
import subprocess
import threading
import time
import uuid
from pathlib import Path
from typing import Any

import pytest

from servegrid.host import proc

POLITE = """
import pathlib, signal, sys, time
def end(*_):
    pathlib.Path(sys.argv[1], "bye").touch()
    sys.exit(0)
signal.signal(signal.SIGTERM, end)
pathlib.Path(sys.argv[1], "ready").touch()
time.sleep(60)
"""


def test_running_program_may_end_itself_when_the_block_ends(tmp_path: Path, processes: Any) -> None:
    with proc.running(processes.python(POLITE, tmp_path), log_path=tmp_path / "log") as process:
        processes.wait_for((tmp_path / "ready").exists)
        assert process.poll() is None
    assert (tmp_path / "bye").exists()
    assert process.returncode == 0


def test_running_program_is_stopped_when_the_block_raises(tmp_path: Path, processes: Any) -> None:
    with (
        pytest.raises(ValueError, match="in the block"),
        proc.running(processes.python(POLITE, tmp_path), log_path=tmp_path / "log"),
    ):
        processes.wait_for((tmp_path / "ready").exists)
        raise ValueError("in the block")
    assert (tmp_path / "bye").exists()


def test_running_program_that_does_not_stop_is_killed_with_its_family(tmp_path: Path, processes: Any) -> None:
    with proc.running(processes.family(tmp_path / "pids"), log_path=tmp_path / "log", stop_s=0.5):
        family = processes.pids(tmp_path / "pids")
        start = time.monotonic()
    assert 0.4 < time.monotonic() - start < 10
    processes.assert_gone(family, 2)


TALKING = """
import pathlib, signal, sys, time
def end(*_):
    print("stopping", end="", flush=True)
    sys.exit(0)
signal.signal(signal.SIGTERM, end)
print("serving", flush=True)
time.sleep(60)
"""


def test_at_debug_the_command_our_environment_and_all_output_are_shown(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, processes: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OF_THE_USER", "a secret")
    (tmp_path / "log").write_text("of an earlier server\n")
    args = processes.python(TALKING)
    with (
        caplog.at_level(logging.DEBUG, "servegrid"),
        caplog.at_level(logging.DEBUG, "servegrid_output"),
        proc.running(args, log_path=tmp_path / "log", env={"OURS": "a value"}),
    ):
        processes.wait_for(lambda: "serving" in caplog.messages[-1])  # while it runs
    assert f"$ {shlex.join(args)}" in caplog.messages
    assert "'OURS=a value'" in caplog.text and "a secret" not in caplog.text
    assert "stopping" in caplog.messages[-1] and "earlier" not in caplog.text


def test_below_debug_a_running_program_s_output_stays_in_its_log(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, processes: Any
) -> None:
    with (
        caplog.at_level(logging.INFO, "servegrid"),
        proc.running(processes.python(TALKING), log_path=tmp_path / "log"),
    ):
        processes.wait_for(lambda: "serving" in (tmp_path / "log").read_text())
    assert caplog.messages == []


def test_killing_a_program_that_does_not_stop_is_logged(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, processes: Any
) -> None:
    with proc.running(processes.family(tmp_path / "pids"), log_path=tmp_path / "log", stop_s=0.3):
        processes.pids(tmp_path / "pids")
    assert "did not stop in 0.3 s and was killed" in caplog.text


def test_running_program_that_has_ended_already_is_no_error(tmp_path: Path) -> None:
    with proc.running(["echo", "brief"], log_path=tmp_path / "log") as process:
        assert process.wait(timeout=20) == 0
    assert (tmp_path / "log").read_text() == "brief\n"


def test_shared_memory_is_removed_when_the_program_ends(tmp_path: Path, processes: Any) -> None:
    prefix = f"servegrid-test-{uuid.uuid4().hex}"
    path = Path(f"/dev/shm/{prefix}-x")
    try:
        with proc.running(processes.python(POLITE, tmp_path), log_path=tmp_path / "log", shm_prefix=prefix):
            processes.wait_for((tmp_path / "ready").exists)
            path.touch()
        assert not path.exists()
    finally:
        path.unlink(missing_ok=True)


def test_program_outlives_the_thread_that_started_it(tmp_path: Path, processes: Any) -> None:
    context = proc.running(processes.python(POLITE, tmp_path), log_path=tmp_path / "log")
    started: list[subprocess.Popen[bytes]] = []
    thread = threading.Thread(target=lambda: started.append(context.__enter__()))
    thread.start()
    thread.join()
    processes.wait_for((tmp_path / "ready").exists)
    time.sleep(0.2)
    assert started[0].poll() is None
    context.__exit__(None, None, None)
    assert (tmp_path / "bye").exists()
