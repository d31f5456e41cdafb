"""Cores that are kept from sleeping: by what, and that nothing of it is left."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from pathlib import Path
from typing import Any

import psutil
import pytest

from tasks.core import awake, proc
from tasks.core.errors import StepError
from tasks.loadgen.own_load import idle_s

KEEP = """
import pathlib, sys, time
from tasks.core import proc
with proc.cores_awake(pathlib.Path(sys.argv[1])):
    time.sleep(60)
"""


def keepers(owner: int) -> list[psutil.Process]:
    """The processes below the owner that each keep a core awake."""
    below = psutil.Process(owner).children(recursive=True)
    return [p for p in below if awake.__file__ in p.cmdline() and len(p.cpu_affinity() or ()) == 1]


def test_each_core_has_a_process_that_lets_all_others_go_first(tmp_path: Path, processes: Any) -> None:
    cores = os.sched_getaffinity(0)
    with proc.cores_awake(tmp_path / "log"):
        processes.wait_for(lambda: len(keepers(os.getpid())) == len(cores))
        found = keepers(os.getpid())
        assert {core for p in found for core in p.cpu_affinity()} == cores
        assert {os.sched_getscheduler(p.pid) for p in found} == {os.SCHED_IDLE}
        assert {p.status() for p in found} == {psutil.STATUS_RUNNING}
    processes.assert_gone([p.pid for p in found], 2)


def test_what_they_take_of_the_cores_counts_as_idle(tmp_path: Path, processes: Any) -> None:
    def figures() -> tuple[float, float]:
        """What counts as idle, and what it is made of: the kernel's own figure and the keepers' time."""
        kept = sum(sum(p.cpu_times()[:2]) for p in keepers(os.getpid()))
        return idle_s(), psutil.cpu_times().idle + kept

    with proc.cores_awake(tmp_path / "log"):
        processes.wait_for(lambda: len(keepers(os.getpid())) == len(os.sched_getaffinity(0)))
        before = figures()
        time.sleep(1)
        after = figures()
    assert after[0] - before[0] == pytest.approx(after[1] - before[1], abs=0.2)


def test_it_is_told_when_they_end_before_the_block(tmp_path: Path, processes: Any) -> None:
    with pytest.raises(StepError, match="the cores did not stay awake"), proc.cores_awake(tmp_path / "log"):
        processes.wait_for(lambda: len(keepers(os.getpid())) == len(os.sched_getaffinity(0)))
        found = keepers(os.getpid())
        main = next(p for p in found if any(child in found for child in p.children()))
        main.kill()
        processes.assert_gone([p.pid for p in found], 5)
        (supervisor,) = (p for p in psutil.Process().children() if awake.__file__ in p.cmdline())
        processes.wait_for(lambda: supervisor.status() == psutil.STATUS_ZOMBIE)


def test_they_are_gone_when_their_owner_is_killed(tmp_path: Path, processes: Any) -> None:
    owner = subprocess.Popen(processes.python(KEEP, tmp_path / "log"))
    processes.wait_for(lambda: len(keepers(owner.pid)) == len(os.sched_getaffinity(0)))
    found = [p.pid for p in keepers(owner.pid)]
    owner.send_signal(signal.SIGKILL)
    owner.wait()
    processes.assert_gone(found, 5)
