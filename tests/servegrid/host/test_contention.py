"""The host's load by others: a program that is not ours counts, and whatever we start does not."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager

import psutil
import pytest

from servegrid.host import contention
from servegrid.host.contention import CpuTimes, HostLoad, load, watching

BUSY = "import time\nend = time.monotonic() + 120\nwhile time.monotonic() < end: pass"
ORPHAN = f"""
import os, subprocess, sys
quiet = dict.fromkeys(("stdout", "stderr"), subprocess.DEVNULL)
child = subprocess.Popen([sys.executable, "-c", {BUSY!r}], start_new_session=True, **quiet)
print(child.pid, flush=True)
os._exit(0)
"""


@contextmanager
def busy(*, ours: bool) -> Iterator[psutil.Process]:
    """A program that uses one core: a child of this process, or one that it has nothing to do with."""
    if ours:
        process = psutil.Process(subprocess.Popen([sys.executable, "-c", BUSY]).pid)
    else:
        done = subprocess.run([sys.executable, "-c", ORPHAN], capture_output=True, text=True, check=True)
        process = psutil.Process(int(done.stdout))
    try:
        yield process
    finally:
        process.kill()
        psutil.wait_procs([process])


def used(process: psutil.Process) -> float:
    return float(sum(process.cpu_times()[:2]))


@pytest.mark.parametrize("ours", [True, False])
def test_a_busy_program_counts_unless_it_is_ours(ours: bool) -> None:
    """What else runs on the host is in both figures, so the program's own time is what tells them apart."""
    with busy(ours=ours) as process:
        before, began = contention.cpu_times(), used(process)
        while used(process) - began < 1.0:
            time.sleep(0.05)
        after = contention.cpu_times()
        seconds, its = after.at - before.at, used(process) - began
    counted = (after.ours - before.ours) * (1 if ours else -1)
    assert counted > its - 0.1 if ours else counted > -0.1 - 0.1 * its
    if not ours:
        assert (load(before, after).foreign_cores or 0.0) > (its - 0.2) / seconds


def test_the_servers_processes_are_ours() -> None:
    with busy(ours=False) as server:
        before, began = contention.cpu_times(server.pid), used(server)
        while used(server) - began < 0.5:
            time.sleep(0.05)
        after = contention.cpu_times(server.pid)
    assert after.ours - before.ours > 0.4


def test_a_block_has_its_load_at_its_end() -> None:
    with watching(None) as found:
        assert found == []
    assert found[0].foreign_cores is not None and found[0].stolen_cores is not None


def test_shares_are_cores_on_average() -> None:
    before = CpuTimes(at=10.0, busy=100.0, stolen=1.0, ours=50.0)
    after = CpuTimes(at=14.0, busy=110.0, stolen=3.0, ours=52.0)
    assert load(before, after) == HostLoad(foreign_cores=2.0, stolen_cores=0.5)
    assert load(before, after._replace(ours=61.0)).foreign_cores == 0.0


@pytest.mark.parametrize(
    ("foreign", "stolen", "contended"),
    [(0.19, 0.0, False), (0.21, 0.0, True), (0.11, 0.11, True), (0.0, 0.21, True), (None, None, False)],
)
def test_a_twentieth_of_the_cores_is_contention(
    monkeypatch: pytest.MonkeyPatch, foreign: float | None, stolen: float | None, contended: bool
) -> None:
    monkeypatch.setattr("os.sched_getaffinity", lambda pid: set(range(4)))
    assert HostLoad(foreign_cores=foreign, stolen_cores=stolen).contended is contended
