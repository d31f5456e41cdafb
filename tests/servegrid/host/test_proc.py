"""Running other programs: what is kept of their output, how they end, and that none outlives us."""

from __future__ import annotations

import contextlib
import logging
import shlex
import signal
import subprocess
import tempfile
import time
import uuid
from pathlib import Path
from typing import Any

import pytest

from servegrid.domain.errors import StepError
from servegrid.host import proc
from servegrid.host.memory import has_ended

KILLED = "every process that was started is gone"

TEMPORARY = "import os, tempfile; print(tempfile.mkdtemp()); open(f'{tempfile.gettempdir()}/left', 'w')"
"""Leaves a folder and a file."""

# To the end --------------------------------------------------------------------------------------------


def test_output_of_both_streams_is_in_the_log_below_the_command(tmp_path: Path, processes: Any) -> None:
    log = tmp_path / "new" / "step.log"
    args = processes.python("import sys; print('out', flush=True); print('err', file=sys.stderr)")
    proc.run(args, log_path=log, timeout_s=30)
    assert log.read_text().splitlines() == [f"$ {shlex.join(args)}", "out", "err"]


def test_second_run_is_added_to_the_log(tmp_path: Path) -> None:
    for word in ("first", "second"):
        proc.run(["echo", word], log_path=tmp_path / "log", timeout_s=30)
    assert (tmp_path / "log").read_text() == "$ echo first\nfirst\n$ echo second\nsecond\n"


def test_output_goes_to_the_logger_at_the_wanted_level(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.INFO, "servegrid"):
        proc.run(["echo", "quiet"], log_path=tmp_path / "log", timeout_s=30)
        proc.run(["echo", "aloud"], log_path=tmp_path / "log", timeout_s=30, level=logging.INFO)
    assert [record.getMessage().strip() for record in caplog.records] == ["aloud"]


def test_output_that_is_no_text_is_survived(tmp_path: Path, processes: Any) -> None:
    code = "import sys; sys.stdout.buffer.write(b'a\\xff\\x00b\\n')"
    proc.run(processes.python(code), log_path=tmp_path / "log", timeout_s=30)
    assert "a\ufffd\0b" in (tmp_path / "log").read_text()


def test_arguments_reach_the_program_as_they_are(tmp_path: Path) -> None:
    proc.run(["echo", "$HOME; *", "`x`"], log_path=tmp_path / "log", timeout_s=30)
    assert (tmp_path / "log").read_text().splitlines()[1] == "$HOME; * `x`"


def test_environment_is_added_to_ours(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, processes: Any
) -> None:
    monkeypatch.setenv("OURS", "1")
    code = "import os; print(os.environ['OURS'], os.environ['THEIRS'])"
    proc.run(processes.python(code), log_path=tmp_path / "log", timeout_s=30, env={"THEIRS": "2"})
    assert (tmp_path / "log").read_text().splitlines()[1] == "1 2"


@pytest.mark.parametrize("end", ["pass", "os._exit(3)", "os.kill(os.getpid(), 9)"])
def test_temporary_files_of_a_program_go_with_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, processes: Any, end: str
) -> None:
    (folder := tmp_path / "temporary").mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(folder))
    with contextlib.suppress(StepError):
        proc.run(processes.python(f"{TEMPORARY}\n{end}"), log_path=tmp_path / "log", timeout_s=30)
    assert list(folder.iterdir()) == []


def test_temporary_files_of_a_program_are_where_ours_are(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, processes: Any
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    proc.run(processes.python(TEMPORARY), log_path=tmp_path / "log", timeout_s=30)
    assert Path(proc.tail(tmp_path / "log", lines=1)).is_relative_to(tmp_path)


def test_failure_has_code_last_lines_log_and_command(tmp_path: Path, processes: Any) -> None:
    code = "import sys\nfor i in range(30): print('line', i)\nsys.exit(7)"
    with pytest.raises(StepError) as caught:
        proc.run(processes.python(code), log_path=tmp_path / "log", timeout_s=30)
    first, *tail = str(caught.value).splitlines()
    assert first == "ended with exit code 7"
    assert tail == [f"line {i}" for i in range(30 - proc.TAIL_LINES, 30)]
    assert caught.value.log == str(tmp_path / "log")
    assert shlex.split(caught.value.command) == processes.python(code)


def test_failure_has_the_given_repeat_command(tmp_path: Path) -> None:
    with pytest.raises(StepError) as caught:
        proc.run(["false"], log_path=tmp_path / "log", timeout_s=30, repeat="do it again")
    assert caught.value.command == "do it again"


@pytest.mark.fault("Processes", "an error that names the program", what="a program is not there")
def test_program_that_is_not_there_is_a_failed_step(tmp_path: Path) -> None:
    with pytest.raises(StepError, match="No such file or directory: 'no-such-program'"):
        proc.run(["no-such-program"], log_path=tmp_path / "log", timeout_s=30)


@pytest.mark.fault("Processes", "an error with log and repeat command", what="a child is killed")
def test_killed_program_may_have_run_out_of_memory(tmp_path: Path, processes: Any) -> None:
    code = "import os; print('big', flush=True); os.kill(os.getpid(), 9)"
    with pytest.raises(StepError, match=r"(?s)killed.*memory.*\nbig$") as caught:
        proc.run(processes.python(code), log_path=tmp_path / "log", timeout_s=30)
    assert caught.value.log == str(tmp_path / "log")
    assert shlex.split(caught.value.command) == processes.python(code)


@pytest.mark.fault("Processes", "an error with log and repeat command", what="a child crashes")
def test_program_that_another_signal_ended_did_not_run_out_of_memory(tmp_path: Path, processes: Any) -> None:
    with pytest.raises(StepError, match=r"\b139\b"):
        proc.run(
            processes.python("import os; os.kill(os.getpid(), 11)"), log_path=tmp_path / "log", timeout_s=30
        )


ALLOCATES = """
import resource, sys
if len(sys.argv) > 1:
    with open(sys.argv[1], "w") as tasks:
        tasks.write("0")
else:
    resource.setrlimit(resource.RLIMIT_AS, (2**30, 2**30))
kept = []
for _ in range(64):
    kept.append(bytearray(2**26))
"""
CGROUPS = Path("/sys/fs/cgroup/memory")


@pytest.mark.fault(
    "Processes", "an error that says that memory ended", what="a child reaches its limit of memory"
)
def test_child_that_reaches_its_limit_of_memory(tmp_path: Path, processes: Any, happened: Any) -> None:
    with pytest.raises(StepError) as caught:
        proc.run(processes.python(ALLOCATES), log_path=tmp_path / "log", timeout_s=30)
    assert str(caught.value).splitlines()[-1] == "MemoryError"
    assert has_ended(str(caught.value))
    happened("ended with exit code 1 ... MemoryError")


@pytest.mark.fault(
    "Processes", "an error that says that memory may have ended", what="the kernel kills a child for memory"
)
def test_child_that_the_kernel_kills_for_memory(tmp_path: Path, processes: Any, happened: Any) -> None:
    group = CGROUPS / f"servegrid-{uuid.uuid4().hex}"
    try:
        group.mkdir()
        (group / "memory.limit_in_bytes").write_text(str(2**28))
    except OSError as error:
        pytest.skip(f"a limit of the kernel's own cannot be set here: {error}")
    try:
        with pytest.raises(StepError, match=r"killed.*memory") as caught:
            proc.run(processes.python(ALLOCATES, group / "tasks"), log_path=tmp_path / "log", timeout_s=30)
        happened(str(caught.value).splitlines()[0])
    finally:
        group.rmdir()


@pytest.mark.fault("Processes", KILLED, what="a child and its child hang, and heed no SIGTERM")
def test_time_limit_ends_all_processes_with_an_error(tmp_path: Path, processes: Any) -> None:
    start = time.monotonic()
    with pytest.raises(StepError, match=r"\b0\.8 s") as caught:
        proc.run(processes.family(tmp_path / "pids"), log_path=tmp_path / "log", timeout_s=0.8)
    assert time.monotonic() - start < 20
    processes.assert_gone(processes.pids(tmp_path / "pids"), 2)
    assert caught.value.log == str(tmp_path / "log")
    assert shlex.split(caught.value.command) == processes.family(tmp_path / "pids")


def test_child_left_behind_is_killed_when_its_parent_has_ended(tmp_path: Path, processes: Any) -> None:
    code = "import subprocess, sys; print(subprocess.Popen(['sleep', '60']).pid)"
    proc.run(processes.python(code), log_path=tmp_path / "log", timeout_s=30)
    processes.assert_gone([int(proc.tail(tmp_path / "log", lines=1))], 2)


@pytest.mark.fault("Processes", KILLED, what="a child starts another in a session of its own")
def test_child_in_a_session_of_its_own_does_not_outlive_us_either(tmp_path: Path, processes: Any) -> None:
    code = (
        "import subprocess as s; "
        "print(s.Popen(['sleep', '30'], start_new_session=True, stdout=s.DEVNULL, stderr=s.DEVNULL).pid)"
    )
    proc.run(processes.python(code), log_path=tmp_path / "log", timeout_s=30)
    processes.assert_gone([int(proc.tail(tmp_path / "log", lines=1))], 1)


@pytest.mark.fault("Processes", KILLED, what="a grandchild keeps the output open")
def test_time_limit_holds_when_a_child_in_a_session_of_its_own_keeps_the_output_open(
    tmp_path: Path, processes: Any
) -> None:
    code = "import subprocess; subprocess.Popen(['sleep', '4'], start_new_session=True)"
    start = time.monotonic()
    try:
        proc.run(processes.python(code), log_path=tmp_path / "log", timeout_s=0.3)
    except StepError as error:
        assert "ran past its limit" in str(error)  # this, or a normal end, but not after 4 s
    assert time.monotonic() - start < 3.9


@pytest.mark.fault("Processes", KILLED, what="Ctrl-C while a child runs")
def test_interrupted_run_leaves_nothing_running(tmp_path: Path, processes: Any) -> None:
    code = (
        "import sys\nfrom pathlib import Path\nfrom servegrid.host import proc\n"
        "proc.run(sys.argv[2:], log_path=Path(sys.argv[1]), timeout_s=60)"
    )
    command = processes.python(code, tmp_path / "log", *processes.family(tmp_path / "pids"))
    owner = subprocess.Popen(command, stderr=subprocess.DEVNULL)
    family = processes.pids(tmp_path / "pids")
    owner.send_signal(signal.SIGINT)
    assert owner.wait(timeout=20) != 0
    processes.assert_gone(family, 2)


# Death of the owner ------------------------------------------------------------------------------------

OWNER = """
import sys, time
from pathlib import Path
from servegrid.host import proc
how, log, prefix, *args = sys.argv[1:]
if how == "run":
    proc.run(args, log_path=Path(log), timeout_s=60)
with proc.running(args, log_path=Path(log), shm_prefix=prefix):
    time.sleep(60)
"""


@pytest.mark.fault("Processes", KILLED, what="the owner is killed in")
@pytest.mark.parametrize("how", ["run", "running"])
def test_nothing_outlives_an_owner_that_is_killed(tmp_path: Path, how: str, processes: Any) -> None:
    family_command = processes.family(tmp_path / "pids")
    owner = subprocess.Popen(processes.python(OWNER, how, tmp_path / "log", "-", *family_command))
    family = processes.pids(tmp_path / "pids")
    assert all(map(processes.alive, family))
    owner.kill()
    owner.wait()
    processes.assert_gone(family, 2)


@pytest.mark.fault("Shared memory", "it is removed", what="the owner of a server is killed")
def test_shared_memory_is_removed_when_the_owner_is_killed(tmp_path: Path, processes: Any) -> None:
    prefix = f"servegrid-test-{uuid.uuid4().hex}"
    ours = [Path(f"/dev/shm/{prefix}{end}") for end in ("", "-region-1")]
    other = Path(f"/dev/shm/other-{prefix}")
    family_command = processes.family(tmp_path / "pids")
    owner = subprocess.Popen(processes.python(OWNER, "running", tmp_path / "log", prefix, *family_command))
    family = processes.pids(tmp_path / "pids")
    try:
        for path in (*ours, other):
            path.touch()
        owner.kill()
        owner.wait()
        processes.wait_for(lambda: not any(p.exists() for p in ours), 2)
        assert other.exists()
        processes.assert_gone(family, 2)
    finally:
        for path in (*ours, other):
            path.unlink(missing_ok=True)


@pytest.mark.fault("Processes", KILLED, what="the supervisor is killed")
def test_command_does_not_outlive_a_supervisor_that_is_killed(tmp_path: Path, processes: Any) -> None:
    code = "import os, sys, time; print(os.getpid(), flush=True); time.sleep(60)"
    with proc.running(processes.python(code), log_path=tmp_path / "log") as process:
        processes.wait_for(lambda: proc.tail(tmp_path / "log") != "")
        process.kill()
        processes.assert_gone([int(proc.tail(tmp_path / "log"))], 2)


def test_tail_of_a_log_is_its_last_lines_and_of_none_is_empty(tmp_path: Path) -> None:
    (tmp_path / "log").write_text("a\nb\nc\n")
    assert proc.tail(tmp_path / "log", lines=2) == "b\nc"
    assert proc.tail(tmp_path / "none") == ""
