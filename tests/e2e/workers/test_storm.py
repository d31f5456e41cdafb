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

from servegrid.campaign import leases, results
from servegrid.campaign.campaign import read
from servegrid.host.device_locks import LOCKS

pytestmark = pytest.mark.check

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
    "--window-s",
    "0.3",
    "--request-count",
    "10",
)
CELLS = {
    "tiny_mlp-tiny-onnx-fp32-c1": ("passed", "unstable"),
    "tiny_mlp-tiny-ts-trace-fp32-c1": ("passed", "unstable"),
    "tiny_mlp-tiny-onnx-fp32-trt-c1": ("unsupported",),
}
"""Cell -> how it may end. The last has its row before anything is killed, and must keep it."""


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
    "child": lambda line: (
        ("-m servegrid.frameworks" in line or "loadgen.client.process" in line) and "supervise" not in line
    ),
    "tritonserver": lambda line: line.split()[0].endswith("bin/tritonserver"),
    "server": lambda line: "prefect server start" in line and "supervise.py" not in line,
}
"""Target of a kill -> a test of its command line."""


def at_work(campaign: Path) -> set[str]:
    """The runs that a process works for."""
    return {path.stem for path in (campaign / "runs").glob("*.lock") if leases.look(path).held}


def assert_no_lock_is_held(grid: Any, folder: Path) -> None:
    assert leases.holder(folder / "leader.lock") is None
    for path in (*folder.glob("runs/*.lock"), *folder.glob("*/claims/*.lock")):
        assert leases.holder(path) is None, path
    for path in (LOCKS / f"{PROFILE}.lock", *(grid.command.site.home / "store" / "locks").glob("*.lock")):
        with path.open() as file:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)


def assert_artifacts_are_whole(grid: Any) -> dict[str, int]:
    """Key of each artifact -> when it was stored, in ns."""
    store = grid.command.site.store
    stored = {}
    for path in (store.root / "keys").glob("*.json"):
        json.loads(path.read_text())
        stored[path.stem] = path.stat().st_mtime_ns
    for entry in store.entries():
        assert store.intact(entry.artifact), entry
    return stored


class Storm:
    """Campaigns of these words, hit by `kill -9` and resumed until each has these cells.

    A kill comes up to `longest_s` after its campaign was begun, resumed or hit before; with `at_work`, after
    its run works.
    """

    def __init__(
        self,
        grid: Any,
        rng: random.Random,
        *,
        words: tuple[str, ...],
        cells: dict[str, tuple[str, ...]],
        at_work: bool,
        longest_s: float,
    ) -> None:
        self.complete = 0
        """Campaigns that came to their end."""
        self._grid, self._rng = grid, rng
        self._words, self._cells = words, cells
        self._at_work, self._longest_s = at_work, longest_s
        self._campaign: Path | None = None
        self._leader: subprocess.Popen[str] | None = None
        self._finished: set[Any] = set()
        self._stored: dict[str, int] = {}
        self._begin = time.monotonic()

    def hit(self, target: str) -> None:
        """Kill one of these; where the campaign ends before there is one, it or the next goes on."""
        while True:
            leader, campaign = self._lead()
            moment = self._rng.uniform(0, self._longest_s)
            time.sleep(moment)
            runs = at_work(campaign)
            if self._kill(target, leader):
                break
            self._tell(f"no {target}: the campaign ended before")
            self._settle()
        self._tell(f"{target} killed, {moment:.1f} s after it was waited for")
        if target == "server":
            self._grid.lost("server")
            self._grid.start_server()
        if target == "worker":
            self._grid.lost(POOL)
            self._grid.start_worker(POOL)
        if target == "flow":  # it is resumed at once, while its run still ends
            leader.communicate(timeout=60)
            self._leader, self._runs = None, runs

    def go_through(self, targets: list[str]) -> None:
        """Kill one of each in turn, and let the last campaign come to its end."""
        for target in targets:
            self.hit(target)
        self.end()
        assert self.complete

    def end(self) -> None:
        """Let the campaign come to its end: no more than one resumption after the last kill."""
        if self._leader:
            self._settle()
        if self._campaign:
            self._lead()
            output = self._settle()
            assert self._campaign is None, output

    def _lead(self) -> tuple[subprocess.Popen[str], Path]:
        """The campaign's process and folder, once it leads, or has ended again."""
        if self._leader and self._leader.poll() is not None:
            self._settle()
        if self._leader is None:
            results_folder = self._grid.command.site.results
            known = set(results_folder.glob("2*/campaign.json"))
            begun = read(self._campaign).attempt if self._campaign else 0
            words = ("sweep", "--resume", self._campaign.name) if self._campaign else self._words
            self._leader = self._grid.command.start(*words)
            while self._leader.poll() is None:
                fresh = set(results_folder.glob("2*/campaign.json")) - known
                if fresh or (self._campaign and read(self._campaign).attempt > begun):
                    break
                time.sleep(0.05)
            if self._campaign is None:
                assert fresh, self._leader.communicate()[0]
                self._campaign = fresh.pop().parent
            self._tell("resumed" if begun else "begun")
        assert self._campaign
        while self._at_work and self._leader.poll() is None:
            if at_work(self._campaign) - self._runs:
                break
            time.sleep(0.05)
        return self._leader, self._campaign

    def _kill(self, target: str, leader: subprocess.Popen[str]) -> bool:
        """Kill it as soon as it is there; False when the campaign ended before."""
        while leader.poll() is None:
            if target == "flow":
                leader.kill()
                return True
            for process, line in processes(self._grid):
                if TARGETS[target](line):
                    process.kill()
                    return True
            time.sleep(0.05)
        return False

    def _settle(self) -> str:
        """When the campaign's process has ended: nothing that worked for it is left, no lock is held, no
        artifact is half or built twice, no finished row is lost; if it is complete, its rows are right."""
        assert self._leader and self._campaign
        output, _ = self._leader.communicate(timeout=300)
        code, self._leader = self._leader.returncode, None
        self._tell(f"ended with exit code {code}")
        deadline = time.monotonic() + 60
        stays = ("worker start", "server start", "prefect.server")
        while left := [line for _, line in processes(self._grid) if not any(word in line for word in stays)]:
            assert time.monotonic() < deadline, left
            time.sleep(0.1)
        assert_no_lock_is_held(self._grid, self._campaign)
        stored = assert_artifacts_are_whole(self._grid)
        assert self._stored.items() <= stored.items(), "nothing is built twice"
        self._stored = stored
        finished = set(results.finished(self._campaign))
        assert self._finished <= finished, output
        self._finished = finished
        if code == 0:
            self._assert_complete(self._campaign)
            self._campaign, self._finished, self.complete = None, set(), self.complete + 1
        return str(output)

    def _assert_complete(self, campaign: Path) -> None:
        found, measurements = results.read(campaign)
        assert set(found["profile"]) == {PROFILE}
        assert sorted(found["cell"]) == sorted(self._cells)
        for row in found.iter_rows(named=True):
            assert row["verdict"] in self._cells[row["cell"]], row["reason"]
        assert Counter(measurements["cell"]) == {
            name: 2 for name, verdicts in self._cells.items() if "passed" in verdicts
        }
        rows = [json.loads(line) for line in (campaign / "rows.jsonl").read_text().splitlines()]
        settled = [r["cell"] for r in rows if r["kind"] == "cell" and r["verdict"] in results.SETTLED]
        assert sorted(settled) == sorted(self._cells), "no finished cell was run again"
        assert not list((self._grid.command.site.store.root / "scratch").iterdir())
        assert (campaign / "report.html").exists()

    _runs: frozenset[str] | set[str] = frozenset()
    """The runs of a campaign whose flow was killed: they may hold their leases for a moment."""

    def _tell(self, what: str) -> None:
        print(f"{time.monotonic() - self._begin:5.0f} s  {what}")


@pytest.fixture
def rng() -> random.Random:
    """Moments and their order; what was printed and is given as SERVEGRID_STORM repeats them."""
    seed = int(os.environ.get("SERVEGRID_STORM", time.time_ns() % 2**32))
    print(f"SERVEGRID_STORM={seed}")
    return random.Random(seed)  # no secret


def test_five_kills(grid: Any, rng: random.Random) -> None:
    targets = ["flow", "worker", "child", "tritonserver", "server"]
    rng.shuffle(targets)
    storm = Storm(grid, rng, words=WORDS, cells=CELLS, at_work=True, longest_s=4.0)
    storm.go_through(targets)


@pytest.mark.soak
@pytest.mark.timeout(2400)  # it waits for each of twenty moments, and for the campaigns that end before
def test_twenty_kills(grid: Any, rng: random.Random) -> None:
    targets = (4 * list(TARGETS))[:20]
    rng.shuffle(targets)
    storm = Storm(grid, rng, words=WORDS, cells=CELLS, at_work=False, longest_s=20.0)
    storm.go_through(targets)
