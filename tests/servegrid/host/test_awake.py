"""Cores that are kept from sleeping: by what, what that takes, and that nothing of it is left."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from pathlib import Path
from typing import Any

import psutil
import pytest

from servegrid.domain.errors import StepError
from servegrid.host import awake, proc
from servegrid.loadgen.lag import idle_s, idle_times

KEEP = """
import pathlib, sys, time
from servegrid.host import proc
with proc.cores_awake(pathlib.Path(sys.argv[1])):
    time.sleep(60)
"""
BUSY = """
import os, sys
os.sched_setaffinity(0, {int(sys.argv[1])})
while True: pass
"""


def keepers(owner: int, processes: Any) -> list[psutil.Process]:
    """The processes below the owner that each keep a core awake, once all do."""

    def found() -> list[psutil.Process]:
        below = psutil.Process(owner).children(recursive=True)
        forked = [p for p in below if awake.__file__ in p.cmdline() and not p.children()]
        return [p for p in forked if len(p.cpu_affinity()) == 1 or len(os.sched_getaffinity(0)) == 1]

    processes.wait_for(lambda: len(found()) == len(os.sched_getaffinity(0)))
    return found()


def taken_s(of: list[psutil.Process]) -> float:
    return sum(sum(p.cpu_times()[:2]) for p in of)


def test_each_core_has_a_process_of_idle_priority(tmp_path: Path, processes: Any) -> None:
    cores = os.sched_getaffinity(0)
    with proc.cores_awake(tmp_path / "log") as check:
        found = keepers(os.getpid(), processes)
        assert {core for p in found for core in p.cpu_affinity()} == cores
        assert {os.sched_getscheduler(p.pid) for p in found} == {os.SCHED_IDLE}
        check()
    processes.assert_gone([p.pid for p in found], 2)


def test_busy_processes_of_any_session_lose_no_time_to_them(tmp_path: Path, processes: Any) -> None:
    cores = sorted(os.sched_getaffinity(0))
    with proc.cores_awake(tmp_path / "log"):
        found = keepers(os.getpid(), processes)
        busy = [
            subprocess.Popen(processes.python(BUSY, core), start_new_session=session)
            for core, session in zip(cores * 2, [True, False] * len(cores), strict=True)
        ]
        try:
            processes.wait_for(lambda: all(taken_s([psutil.Process(p.pid)]) > 0.3 for p in busy))
            before = taken_s(found)
            time.sleep(2)
            assert taken_s(found) - before < 0.1 * 2 * len(cores)
        finally:
            for process in busy:
                process.kill()
                process.wait()


def test_their_time_counts_as_idle(tmp_path: Path, processes: Any) -> None:
    with proc.cores_awake(tmp_path / "log"):
        found = keepers(os.getpid(), processes)
        known = {0, *(p.pid for p in found)}
        first, idle, taken = idle_times(), psutil.cpu_times().idle, taken_s(found)
        time.sleep(1)
        last, idle, taken = idle_times(), psutil.cpu_times().idle - idle, taken_s(found) - taken
    assert known <= set(last)
    ours = {pid: seconds for pid, seconds in last.items() if pid in known}
    assert idle_s(first, ours) == pytest.approx(idle + taken, abs=0.2)


def test_idle_time_does_not_run_back_when_a_process_of_idle_priority_ends() -> None:
    assert idle_s({0: 5.0, 7: 600.0, 8: 1.0}, {0: 6.0, 8: 1.5, 9: 0.25}) == 1.75


def test_the_check_fails_when_one_of_the_processes_ends(tmp_path: Path, processes: Any) -> None:
    with proc.cores_awake(tmp_path / "log") as check:
        found = keepers(os.getpid(), processes)
        found[0].kill()
        with pytest.raises(StepError, match=rf"\b{found[0].pid}\b"):
            processes.wait_for(check)
        processes.assert_gone([p.pid for p in found], 5)


def test_they_are_gone_when_their_owner_is_killed(tmp_path: Path, processes: Any) -> None:
    owner = subprocess.Popen(processes.python(KEEP, tmp_path / "log"))
    found = [p.pid for p in keepers(owner.pid, processes)]
    owner.send_signal(signal.SIGKILL)
    owner.wait()
    processes.assert_gone(found, 5)
