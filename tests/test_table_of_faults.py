"""The table of faults counts what goes wrong: who leaves something behind, or loses a row, is seen."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path

from servegrid.domain.root import ROOT

TESTS = """
import subprocess, tempfile
from pathlib import Path
import pytest

@pytest.mark.fault("Inputs: texts", "nothing", what="a text is")
@pytest.mark.parametrize("text", ["a|b", "<b>"])
def test_right(text, happened):
    happened(f"it was {text}")

@pytest.mark.fault("Leaks", "nothing", what="a process")
def test_process():
    words = ["sh", "-c", "echo; exec sleep 5"]
    process = subprocess.Popen(words, start_new_session=True, stdout=subprocess.PIPE)
    process.stdout.read(1)  # it runs: while it is started, nobody sees its environment

@pytest.mark.fault("Leaks", "nothing", what="shared memory")
def test_shared_memory():
    Path("shm/servegrid_leak").touch()

@pytest.mark.fault("Leaks", "nothing", what="a temporary file")
def test_temporary_file():
    tempfile.mkstemp()

@pytest.mark.fault("Rows", "none is lost", what="a campaign")
def test_row(happened):
    happened.rows(planned=3, kept=2)

@pytest.mark.fault("Rows", "none is lost", what="elsewhere")
def test_elsewhere():
    pytest.skip("no such disk")

def test_that_is_no_fault():
    subprocess.Popen(["sleep", "0.1"])
"""


def test_failures_are_counted(tmp_path: Path) -> None:
    shutil.copy(ROOT / "conftest.py", tmp_path)
    (tmp_path / "docs").mkdir()
    shutil.copy(ROOT / "docs" / "make_reliability.py", tmp_path / "docs")
    (tmp_path / "tests").mkdir()
    (tmp_path / "tests" / "test_it.py").write_text(TESTS)
    (tmp_path / "shm").mkdir()  # the host's own is shared with the tests that run beside this one
    words = [sys.executable, "-m", "pytest", "-q", "-p", "no:xdist", "--rootdir", str(tmp_path)]
    words += ["-o", f"shm={tmp_path / 'shm'}"]
    done = subprocess.run(
        [*words, "--reliability", "page.md", "-o", "leave_s=0.2", "-W", "ignore", "tests/test_it.py"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
    )
    assert "1 failed, 6 passed, 1 skipped, 3 errors" in done.stdout, done.stdout
    page = (tmp_path / "page.md").read_text()
    assert re.findall(r"^\| ([^|]+) \| (\d+) \|$", page, flags=re.MULTILINE) == [
        ("distinct classes of input tried", "2"),
        ("other faults tried", "4"),
        ("not tried on the host where this was made", "1"),
        ("wrong outcomes", "4"),
        ("rows that campaigns under a fault should have written", "3"),
        ("rows lost", "1"),
        ("processes left", "1"),
        ("shared memory and temporary files left", "2"),
    ]
    assert "| a text is a\\|b | nothing | it was a\\|b |" in page
    assert "| a text is &lt;b&gt; | nothing | it was &lt;b&gt; |" in page
    assert "| elsewhere | none is lost | not tried here: Skipped: no such disk |" in page


WAIT = """
import time
from pathlib import Path
import pytest

def wait_for(condition):
    while not condition():
        time.sleep(0.02)
"""
NEIGHBOUR = """
@pytest.mark.fault("Leaks", "nothing", what="neighbour")
def test_keeps_memory_for_a_while(tmp_path_factory):
    wait_for(Path("started").exists)
    memory = Path("shm/servegrid_neighbour")
    memory.touch()
    running = tmp_path_factory.getbasetemp().parent / "running"
    # The kernel lists who waits for a lock, with the inode of its file.
    wait_for(lambda: any(
        "->" in line and any(f":{path.stat().st_ino} " in line for path in running.iterdir())
        for line in Path("/proc/locks").read_text().splitlines()
    ))
    memory.unlink()
"""
JUDGED = """
@pytest.mark.fault("Leaks", "nothing", what="judged")
def test_ends_first():
    Path("started").touch()
    wait_for(Path("shm/servegrid_neighbour").exists)
"""


def test_memory_of_a_test_that_runs_at_the_same_time_is_no_leak(tmp_path: Path) -> None:
    shutil.copy(ROOT / "conftest.py", tmp_path)
    for folder in ("shm", "tests/one", "tests/other"):
        (tmp_path / folder).mkdir(parents=True)
    (tmp_path / "tests" / "one" / "test_neighbour.py").write_text(WAIT + NEIGHBOUR)
    (tmp_path / "tests" / "other" / "test_judged.py").write_text(WAIT + JUDGED)
    words = [sys.executable, "-m", "pytest", "-q", "--rootdir", str(tmp_path), "--numprocesses", "2"]
    words += ["-o", f"shm={tmp_path / 'shm'}", "-o", "leave_s=0.2", "-W", "ignore", "tests"]
    done = subprocess.run(words, cwd=tmp_path, capture_output=True, text=True, timeout=120)
    assert "2 passed" in done.stdout and done.returncode == 0, done.stdout
