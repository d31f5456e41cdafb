"""Running other programs: what is kept of their output, how they end, and that none outlives us."""

from __future__ import annotations

import logging
import os
import shlex
import signal
import subprocess
import sys
import threading
import time
import uuid
from collections.abc import Callable
from pathlib import Path

import pytest

from tasks.core import proc
from tasks.core.errors import StepError


def python(code: str, *arguments: object) -> list[str]:
    return [sys.executable, "-c", code, *map(str, arguments)]


# Writes its own and its child's process ids into a file. Both ignore SIGTERM, which `sleep` inherits.
FAMILY = """
import os, signal, subprocess, sys, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
child = subprocess.Popen(["sleep", "60"])
with open(sys.argv[1] + ".part", "w") as file:
    file.write(f"{os.getpid()} {child.pid}")
os.rename(sys.argv[1] + ".part", sys.argv[1])
time.sleep(60)
"""


def alive(pid: int) -> bool:
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return False
    return stat.rpartition(")")[2].split()[0] not in "ZX"


def wait_for(condition: Callable[[], bool], seconds: float = 20.0) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "waited in vain"
        time.sleep(0.01)


def pids(path: Path) -> list[int]:
    wait_for(path.exists)
    return [int(text) for text in path.read_text().split()]


def assert_gone(family: list[int], seconds: float) -> None:
    try:
        wait_for(lambda: not any(map(alive, family)), seconds)
    finally:
        for pid in filter(alive, family):
            os.kill(pid, signal.SIGKILL)


# To the end --------------------------------------------------------------------------------------------


def test_output_of_both_streams_is_in_the_log_below_the_command(tmp_path: Path) -> None:
    log = tmp_path / "new" / "step.log"
    args = python("import sys; print('out', flush=True); print('err', file=sys.stderr)")
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


def test_output_that_is_no_text_is_survived(tmp_path: Path) -> None:
    code = "import sys; sys.stdout.buffer.write(b'a\\xff\\x00b\\n')"
    proc.run(python(code), log_path=tmp_path / "log", timeout_s=30)
    assert "a\ufffd\0b" in (tmp_path / "log").read_text()


def test_arguments_reach_the_program_as_they_are(tmp_path: Path) -> None:
    proc.run(["echo", "$HOME; *", "`x`"], log_path=tmp_path / "log", timeout_s=30)
    assert (tmp_path / "log").read_text().splitlines()[1] == "$HOME; * `x`"


def test_environment_is_added_to_ours_and_the_folder_is_set(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OURS", "1")
    code = "import os; print(os.environ['OURS'], os.environ['THEIRS'], os.getcwd())"
    proc.run(python(code), log_path=tmp_path / "log", timeout_s=30, env={"THEIRS": "2"}, cwd=tmp_path)
    assert (tmp_path / "log").read_text().splitlines()[1] == f"1 2 {tmp_path}"


def test_failure_tells_code_last_lines_log_and_command(tmp_path: Path) -> None:
    code = "import sys\nfor i in range(30): print('line', i)\nsys.exit(7)"
    with pytest.raises(StepError) as caught:
        proc.run(python(code), log_path=tmp_path / "log", timeout_s=30)
    first, *tail = str(caught.value).splitlines()
    assert first == "ended with exit code 7"
    assert tail == [f"line {i}" for i in range(30 - proc.TAIL_LINES, 30)]
    assert caught.value.log == str(tmp_path / "log")
    assert shlex.split(caught.value.command) == python(code)


def test_failure_tells_the_given_repeat_command_instead(tmp_path: Path) -> None:
    with pytest.raises(StepError) as caught:
        proc.run(["false"], log_path=tmp_path / "log", timeout_s=30, repeat="do it again")
    assert caught.value.command == "do it again"


def test_program_that_is_not_there_is_a_failed_step(tmp_path: Path) -> None:
    with pytest.raises(StepError, match="No such file or directory: 'no-such-program'"):
        proc.run(["no-such-program"], log_path=tmp_path / "log", timeout_s=30)


def test_program_that_is_killed_is_asked_whether_memory_ran_out(tmp_path: Path) -> None:
    code = "import os; print('big', flush=True); os.kill(os.getpid(), 9)"
    with pytest.raises(StepError, match=r"^was killed \(out of memory\?\)\n(.*\n)*big$") as caught:
        proc.run(python(code), log_path=tmp_path / "log", timeout_s=30)
    assert caught.value.log == str(tmp_path / "log")
    assert shlex.split(caught.value.command) == python(code)


def test_program_that_another_signal_ends_is_not_said_to_lack_memory(tmp_path: Path) -> None:
    with pytest.raises(StepError, match=r"^ended with exit code 139"):
        proc.run(python("import os; os.kill(os.getpid(), 11)"), log_path=tmp_path / "log", timeout_s=30)


def test_time_limit_ends_the_whole_family_and_says_so(tmp_path: Path) -> None:
    start = time.monotonic()
    with pytest.raises(StepError, match=r"^ran past its limit of 0\.8 s") as caught:
        proc.run(python(FAMILY, tmp_path / "pids"), log_path=tmp_path / "log", timeout_s=0.8)
    assert time.monotonic() - start < 20
    assert_gone(pids(tmp_path / "pids"), 2)
    assert caught.value.log == str(tmp_path / "log")
    assert shlex.split(caught.value.command) == python(FAMILY, tmp_path / "pids")


def test_child_left_behind_is_killed_when_its_parent_has_ended(tmp_path: Path) -> None:
    code = "import subprocess, sys; print(subprocess.Popen(['sleep', '60']).pid)"
    proc.run(python(code), log_path=tmp_path / "log", timeout_s=30)
    assert_gone([int(proc.tail(tmp_path / "log", lines=1))], 2)


def test_child_in_a_session_of_its_own_does_not_outlive_us_either(tmp_path: Path) -> None:
    code = (
        "import subprocess as s; "
        "print(s.Popen(['sleep', '30'], start_new_session=True, stdout=s.DEVNULL, stderr=s.DEVNULL).pid)"
    )
    proc.run(python(code), log_path=tmp_path / "log", timeout_s=30)
    assert_gone([int(proc.tail(tmp_path / "log", lines=1))], 1)


def test_time_limit_holds_when_a_child_in_a_session_of_its_own_keeps_the_output_open(tmp_path: Path) -> None:
    code = "import subprocess; subprocess.Popen(['sleep', '4'], start_new_session=True)"
    start = time.monotonic()
    try:
        proc.run(python(code), log_path=tmp_path / "log", timeout_s=0.3)
    except StepError as error:
        assert "ran past its limit" in str(error)  # this, or a normal end, but not after 4 s
    assert time.monotonic() - start < 3.9


def test_interrupted_run_leaves_nothing_running(tmp_path: Path) -> None:
    code = (
        "import sys\nfrom pathlib import Path\nfrom tasks.core import proc\n"
        "proc.run(sys.argv[2:], log_path=Path(sys.argv[1]), timeout_s=60)"
    )
    command = python(code, tmp_path / "log", *python(FAMILY, tmp_path / "pids"))
    owner = subprocess.Popen(command, stderr=subprocess.DEVNULL)
    family = pids(tmp_path / "pids")
    owner.send_signal(signal.SIGINT)
    assert owner.wait(timeout=20) != 0
    assert_gone(family, 2)


# Death of the owner ------------------------------------------------------------------------------------

OWNER = """
import sys, time
from pathlib import Path
from tasks.core import proc
how, log, prefix, *args = sys.argv[1:]
if how == "run":
    proc.run(args, log_path=Path(log), timeout_s=60)
with proc.running(args, log_path=Path(log), shm_prefix=prefix):
    time.sleep(60)
"""


@pytest.mark.parametrize("how", ["run", "running"])
def test_nothing_outlives_an_owner_that_is_killed(tmp_path: Path, how: str) -> None:
    family_command = python(FAMILY, tmp_path / "pids")
    owner = subprocess.Popen(python(OWNER, how, tmp_path / "log", "-", *family_command))
    family = pids(tmp_path / "pids")
    assert all(map(alive, family))
    owner.kill()
    owner.wait()
    assert_gone(family, 2)


def test_shared_memory_is_removed_when_the_owner_is_killed(tmp_path: Path) -> None:
    prefix = f"servegrid-test-{uuid.uuid4().hex}"
    ours = [Path(f"/dev/shm/{prefix}{end}") for end in ("", "-region-1")]
    other = Path(f"/dev/shm/other-{prefix}")
    family_command = python(FAMILY, tmp_path / "pids")
    owner = subprocess.Popen(python(OWNER, "running", tmp_path / "log", prefix, *family_command))
    family = pids(tmp_path / "pids")
    try:
        for path in (*ours, other):
            path.touch()
        owner.kill()
        owner.wait()
        wait_for(lambda: not any(p.exists() for p in ours), 2)
        assert other.exists()
        assert_gone(family, 2)
    finally:
        for path in (*ours, other):
            path.unlink(missing_ok=True)


def test_command_does_not_outlive_a_supervisor_that_is_killed(tmp_path: Path) -> None:
    code = "import os, sys, time; print(os.getpid(), flush=True); time.sleep(60)"
    with proc.running(python(code), log_path=tmp_path / "log") as process:
        wait_for(lambda: proc.tail(tmp_path / "log") != "")
        process.kill()
        assert_gone([int(proc.tail(tmp_path / "log"))], 2)


# For as long as a block --------------------------------------------------------------------------------

POLITE = """
import pathlib, signal, sys, time
def end(*_):
    pathlib.Path(sys.argv[1], "bye").touch()
    sys.exit(0)
signal.signal(signal.SIGTERM, end)
pathlib.Path(sys.argv[1], "ready").touch()
time.sleep(60)
"""


def test_running_program_may_end_itself_when_the_block_ends(tmp_path: Path) -> None:
    with proc.running(python(POLITE, tmp_path), log_path=tmp_path / "log") as process:
        wait_for((tmp_path / "ready").exists)
        assert process.poll() is None
    assert (tmp_path / "bye").exists()
    assert process.returncode == 0


def test_running_program_is_stopped_when_the_block_raises(tmp_path: Path) -> None:
    with (
        pytest.raises(ValueError, match="in the block"),
        proc.running(python(POLITE, tmp_path), log_path=tmp_path / "log"),
    ):
        wait_for((tmp_path / "ready").exists)
        raise ValueError("in the block")
    assert (tmp_path / "bye").exists()


def test_running_program_that_does_not_stop_is_killed_with_its_family(tmp_path: Path) -> None:
    with proc.running(python(FAMILY, tmp_path / "pids"), log_path=tmp_path / "log", stop_s=0.5):
        family = pids(tmp_path / "pids")
        start = time.monotonic()
    assert 0.4 < time.monotonic() - start < 10
    assert_gone(family, 2)


def test_killing_a_program_that_does_not_stop_is_told(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with proc.running(python(FAMILY, tmp_path / "pids"), log_path=tmp_path / "log", stop_s=0.3):
        pids(tmp_path / "pids")
    assert "did not stop in 0.3 s and was killed" in caplog.text


def test_running_program_that_has_ended_already_is_no_error(tmp_path: Path) -> None:
    with proc.running(["echo", "brief"], log_path=tmp_path / "log") as process:
        assert process.wait(timeout=20) == 0
    assert (tmp_path / "log").read_text() == "brief\n"


def test_shared_memory_is_removed_when_the_program_ends(tmp_path: Path) -> None:
    prefix = f"servegrid-test-{uuid.uuid4().hex}"
    path = Path(f"/dev/shm/{prefix}-x")
    try:
        with proc.running(python(POLITE, tmp_path), log_path=tmp_path / "log", shm_prefix=prefix):
            wait_for((tmp_path / "ready").exists)
            path.touch()
        assert not path.exists()
    finally:
        path.unlink(missing_ok=True)


def test_program_outlives_the_thread_that_started_it(tmp_path: Path) -> None:
    context = proc.running(python(POLITE, tmp_path), log_path=tmp_path / "log")
    started: list[subprocess.Popen[bytes]] = []
    thread = threading.Thread(target=lambda: started.append(context.__enter__()))
    thread.start()
    thread.join()
    wait_for((tmp_path / "ready").exists)
    time.sleep(0.2)
    assert started[0].poll() is None
    context.__exit__(None, None, None)
    assert (tmp_path / "bye").exists()


def test_tail_of_a_log_is_its_last_lines_and_of_none_is_empty(tmp_path: Path) -> None:
    (tmp_path / "log").write_text("a\nb\nc\n")
    assert proc.tail(tmp_path / "log", lines=2) == "b\nc"
    assert proc.tail(tmp_path / "none") == ""
