"""`kill -9` at random moments: a resumed campaign ends with the same rows, and leaves nothing behind."""

from __future__ import annotations

import fcntl
import json
import os
import random
import subprocess
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psutil
import pytest

from flows.campaigns import read
from tasks.core import leases, results
from tasks.core.environment import LOCKS

PROFILE = "test-c"
POOL = f"gpu-{PROFILE}"
WORDS = (
    "sweep",
    "--workers",
    "--model",
    "tiny_mlp",
    "--profile",
    PROFILE,
    "--generator",
    "client",
    "--max-concurrency",
    "1",
)
ONNX = {"tiny_mlp-tiny-onnx-fp32": ("passed", "unstable"), "tiny_mlp-tiny-onnx-fp32-trt": ("unsupported",)}
"""Cell -> how it may end. The second has its row before anything is killed, and must keep it."""
BOTH = ONNX | {"tiny_mlp-tiny-ts-trace-fp32": ("passed", "unstable")}


def processes(grid: Any) -> list[tuple[psutil.Process, str]]:
    """The processes of the grid's site, each with its command line."""
    found = []
    for process in psutil.process_iter():
        try:
            ours = process.environ().get("SERVEGRID_HOME") == str(grid.command.site.home)
            if ours and process.status() != psutil.STATUS_ZOMBIE:
                found.append((process, " ".join(process.cmdline())))
        except (psutil.Error, OSError):
            continue
    return found


def _is_run(line: str) -> bool:
    return "prefect.engine" in line or "prefect flow-run execute" in line


TARGETS: dict[str, Callable[[str], bool]] = {
    "flow": lambda line: "servegrid sweep" in line,
    "worker": lambda line: f"prefect worker start --pool {POOL}" in line and "supervise.py" not in line,
    "run": lambda line: _is_run(line) and "supervise.py" not in line,
    "child": lambda line: ("-m tasks.child" in line or "client_process" in line) and "supervise" not in line,
    "tritonserver": lambda line: line.split()[0].endswith("bin/tritonserver"),
    "server": lambda line: "prefect server start" in line and "supervise.py" not in line,
}
"""What is killed -> whether a command line is one of it."""


def kill(grid: Any, target: str, leader: subprocess.Popen[str]) -> bool:
    """Kill it as soon as it is there; False when the campaign ended before."""
    while True:
        if target == "flow":
            if leader.poll() is None:
                leader.kill()
                return True
        else:
            for process, line in processes(grid):
                if TARGETS[target](line):
                    process.kill()
                    return True
        if leader.poll() is not None:
            return False
        time.sleep(0.05)


def lease(campaign: Path) -> Path:
    return campaign / "runs" / f"tiny_mlp-{PROFILE}.lock"


def settle(grid: Any, leader: subprocess.Popen[str]) -> str:
    """Wait until the campaign's process has ended, and all that worked for it."""
    output, _ = leader.communicate(timeout=300)
    deadline = time.monotonic() + 60
    stays = ("worker start", "server start", "prefect.server")
    while left := [line for _, line in processes(grid) if not any(word in line for word in stays)]:
        assert time.monotonic() < deadline, left
        time.sleep(0.2)
    return str(output)


def assert_no_lock_is_held(grid: Any, folder: Path) -> None:
    assert leases.holder(folder / "leader.lock") is None
    for path in (folder / "runs").glob("*.lock"):
        assert leases.holder(path) is None, path
    for path in (LOCKS / f"{PROFILE}.lock", *(grid.command.site.home / "store" / "locks").glob("*.lock")):
        with path.open() as file:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)


def assert_artifacts_are_whole(grid: Any) -> None:
    store = grid.command.site.store
    for path in (store.root / "keys").glob("*.json"):
        json.loads(path.read_text())
    for entry in store.entries():
        assert store.intact(entry.artifact), entry


def weather(
    grid: Any,
    targets: list[str],
    rng: random.Random,
    *,
    at_work: bool,
    longest_s: float,
    words: tuple[str, ...],
    cells: dict[str, tuple[str, ...]],
) -> int:
    """A storm of one kill for each target, within `longest_s` of the begin of its attempt, or of when
    its run is at work.

    It goes over one campaign or more of these words and cells; how many were finished.
    """
    campaign: Path | None = None
    finished = 0

    def complete() -> None:
        nonlocal campaign, finished
        assert campaign is not None
        found, measurements = results.read(campaign)
        assert set(found["profile"]) == {PROFILE}
        assert sorted(found["cell"]) == sorted(cells)
        for row in found.iter_rows(named=True):
            assert row["verdict"] in cells[row["cell"]], row["reason"]
        assert Counter(measurements["cell"]) == {
            name: 2 for name, verdicts in cells.items() if "passed" in verdicts
        }
        rows = [json.loads(line) for line in (campaign / "rows.jsonl").read_text().splitlines()]
        settled = [r["cell"] for r in rows if r["kind"] == "cell" and r["verdict"] in results.SETTLED]
        assert sorted(settled) == sorted(cells), "no finished cell was run again"
        assert not list((grid.command.site.store.root / "scratch").iterdir())
        assert (campaign / "report.html").exists()
        campaign, finished = None, finished + 1

    for target in targets:
        before = set(results.finished(campaign)) if campaign else set()
        known = set(grid.command.site.results.glob("2*/campaign.json"))
        leader = grid.command.start(*(("sweep", "--resume", campaign.name) if campaign else words))
        begun = read(campaign).attempt if campaign else 0
        while leader.poll() is None:
            fresh = set(grid.command.site.results.glob("2*/campaign.json")) - known
            if fresh or (campaign and read(campaign).attempt > begun):
                break
            time.sleep(0.1)
        campaign = campaign or fresh.pop().parent
        while at_work and leader.poll() is None and not leases.holder(lease(campaign)):
            time.sleep(0.1)
        moment = rng.uniform(0, longest_s)
        time.sleep(moment)
        killed = kill(grid, target, leader)
        if killed and target == "server":
            grid.lost("server")
            grid.start_server()
        if killed and target == "worker":
            grid.lost(POOL)
            grid.start_worker(POOL)
        output = settle(grid, leader)
        print(f"{target} after {moment:.1f} s: {'killed' if killed else 'ended before'}")
        assert before <= results.finished(campaign), output
        assert_no_lock_is_held(grid, campaign)
        assert_artifacts_are_whole(grid)
        if leader.returncode == 0:
            complete()
    if campaign:
        code, output = grid.command.run("sweep", "--resume", campaign.name)
        assert code == 0, output
        complete()
    return finished


@pytest.fixture
def rng() -> random.Random:
    """Moments and their order; what was printed and is given as SERVEGRID_STORM repeats them."""
    seed = int(os.environ.get("SERVEGRID_STORM", time.time_ns() % 2**32))
    print(f"SERVEGRID_STORM={seed}")
    return random.Random(seed)  # no secret


@pytest.mark.soak
def test_five_kills(grid: Any, rng: random.Random) -> None:
    targets = ["flow", "worker", "run", "child", "tritonserver"]
    rng.shuffle(targets)
    assert (
        weather(
            grid, targets, rng, at_work=True, longest_s=12.0, words=(*WORDS, "--format", "onnx"), cells=ONNX
        )
        >= 1
    )


@pytest.mark.soak
def test_twenty_kills(grid: Any, rng: random.Random) -> None:
    targets = (4 * list(TARGETS))[:20]
    rng.shuffle(targets)
    assert weather(grid, targets, rng, at_work=False, longest_s=30.0, words=WORDS, cells=BOTH) >= 1
