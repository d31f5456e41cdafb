"""Workers of one profile share the cells of one model, on simulated cards: real workers, a real Prefect
server on PostgreSQL, and cells that only wait (`simulated_cells.py`)."""

from __future__ import annotations

import json
import random
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from servegrid.campaign import results
from servegrid.campaign.campaign import read
from servegrid.campaign.claims import CellState, Claims

pytestmark = pytest.mark.check

PROFILE = "simulated-card"
POOL = f"gpu-{PROFILE}"
WORDS = ("sweep", "--workers", "--model", "of_eight_cells", "--profile", PROFILE, "--accelerator", "none")
CELLS = 8


def states(grid: Any, folder: Path) -> list[str]:
    """The state of each run of the campaign."""
    runs = grid.flow_runs(tags={"all_": [folder.name]}, deployment_id={"is_null_": False})
    return [run["state_type"] for run in runs]


@pytest.fixture
def workers(grid: Any, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """Starts workers of the profile by name, each for one simulated card; they end with the test."""
    monkeypatch.setitem(grid.command.env, "SIMULATED_CELL_S", "3")
    started = []

    def start(name: str) -> None:
        grid.start_worker(POOL, name)
        started.append(name)

    yield start
    for name in started:
        grid.lost(name)


def begin(grid: Any, wait_for: Any, *words: str) -> tuple[Any, Path]:
    """A campaign that has begun, and its folder."""
    known = set(grid.command.site.results.glob("*/campaign.json"))
    leader = grid.command.start(*WORDS, *words)

    def begun() -> set[Path]:
        found = set(grid.command.site.results.glob("*/campaign.json")) - known
        return {path for path in found if read(path.parent).attempt}

    (path,) = wait_for(begun, 60)
    return leader, path.parent


def held(folder: Path) -> dict[tuple[str, str], str]:
    """The cells that runs hold now, each with its run."""
    campaign = read(folder)
    claims = Claims(folder, campaign.attempt)
    keys = [key for entry in campaign.plans for key in entry.keys]
    paths = {key: folder / key[1] / "claims" / f"{key[0]}.lock" for key in keys}
    return {
        key: json.loads(path.read_text())["runs"][-1]
        for key, path in paths.items()
        if claims.state(key) is CellState.HELD and path.read_text()
    }


def worker_processes(grid: Any) -> list[psutil.Process]:
    """The processes of this profile's workers."""
    found = []
    for process in psutil.process_iter():
        try:
            line = " ".join(process.cmdline())
            ours = process.environ().get("SERVEGRID_HOME") == str(grid.command.site.home)
        except (psutil.Error, OSError):
            continue
        if ours and f"prefect worker start --pool {POOL}" in line and "supervise.py" not in line:
            found.append(process)
    return found


def rows_of_cells(folder: Path) -> list[dict[str, Any]]:
    rows = [json.loads(line) for line in (folder / "rows.jsonl").read_text().splitlines()]
    return [row for row in rows if row["kind"] == "cell"]


def test_two_simulated_cards_share_a_model_a_third_joins_and_a_killed_one_loses_no_cell(
    grid: Any, workers: Any, wait_for: Any
) -> None:
    for name in ("one", "two"):
        workers(name)
    leader, folder = begin(grid, wait_for)
    wait_for(lambda: len(held(folder)) == 2, 60)

    # A worker dies in the middle of a cell, together with its run.
    before = held(folder)
    (victim, *_) = worker_processes(grid)
    family = [victim, *victim.children(recursive=True)]
    for process in family:
        process.kill()
    workers("three")
    output, _ = leader.communicate(timeout=240)
    assert leader.returncode == 0, output

    cells, _ = results.read(folder)
    rows = rows_of_cells(folder)
    assert cells.height == CELLS
    assert set(cells["verdict"]) == {"measured"}
    assert Counter(row["cell"] for row in rows) == dict.fromkeys(cells["cell"], 1), "each measured once"
    assert len({row["worker_pid"] for row in rows}) == 2
    by_run = {(row["cell"], row["profile"]): row["flow_run"] for row in rows}
    lost = [key for key, run in before.items() if by_run[key] != run]
    assert len(lost) == 1, "the cell of the killed run was measured by another"

    builds = Counter(
        path for log in folder.rglob("simulated_builds") for path in log.read_text().splitlines()
    )
    assert set(builds.values()) == {1}, "nothing was built twice"
    wait_for(lambda: set(states(grid, folder)) <= {"COMPLETED", "CRASHED", "CANCELLED"}, 30)
    assert states(grid, folder).count("CRASHED") == 1


def test_campaign_whose_workers_cannot_work_ends_and_names_the_cells_without_a_row(
    grid: Any, workers: Any, wait_for: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        patch.setitem(grid.command.env, "SERVEGRID_MODELS", str(tmp_path))
        workers("without models")
    leader, folder = begin(grid, wait_for)
    output, _ = leader.communicate(timeout=240)
    assert leader.returncode == 1, output
    last = output.splitlines()[-1]
    assert f"--resume {folder.name}" in last
    assert last.count(f" on {PROFILE}") == CELLS
    assert states(grid, folder).count("FAILED") == 3


def test_campaign_that_is_cancelled_before_the_first_row_says_how_to_go_on(grid: Any, wait_for: Any) -> None:
    leader, folder = begin(grid, wait_for)
    wait_for(lambda: states(grid, folder) == ["SCHEDULED"], 30)
    name = {"any_": [f"of_eight_cells (tiny) on {PROFILE}"]}
    (run,) = grid.flow_runs(name=name, state={"type": {"any_": ["RUNNING"]}})
    grid.api.post(f"flow_runs/{run['id']}/set_state", {"state": {"type": "CANCELLING"}})
    output, _ = leader.communicate(timeout=60)
    assert leader.returncode == 1, output
    assert f"--resume {folder.name}" in output.splitlines()[-1]
    wait_for(lambda: set(states(grid, folder)) == {"CANCELLED"}, 30)


@pytest.mark.soak
@pytest.mark.timeout(1200)
def test_four_simulated_cards_take_a_third_of_the_time_of_one(
    grid: Any, workers: Any, wait_for: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    seconds = []
    for cell_s, names in (("10", ["one"]), ("10", ["two", "three", "four"])):
        monkeypatch.setitem(grid.command.env, "SIMULATED_CELL_S", cell_s)
        for name in names:
            workers(name)
        start = time.monotonic()
        leader, folder = begin(grid, wait_for, "--instances", "1,2,3,4,5,6,7,8")
        output, _ = leader.communicate(timeout=500)
        seconds.append(time.monotonic() - start)
        assert leader.returncode == 0, output
        rows = rows_of_cells(folder)
        assert len(rows) == len({row["cell"] for row in rows}) == 16
        assert len({row["worker"] for row in rows}) == (1 if len(seconds) == 1 else 4)
    print(f"16 cells of 10 s: {seconds[0]:.0f} s by one worker, {seconds[1]:.0f} s by four")
    assert seconds[1] <= 0.35 * seconds[0]


@pytest.mark.soak
@pytest.mark.timeout(1200)
def test_twenty_kills_of_simulated_cards_lose_no_cell_and_measure_none_twice(
    grid: Any, workers: Any, wait_for: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    seed = time.time_ns() % 2**32
    print(f"seed {seed}")
    moments = random.Random(seed)
    for number in range(4):
        workers(f"worker {number}")
    leader, folder = begin(grid, wait_for, "--instances", ",".join(map(str, range(1, 33))))
    for number in range(4, 24):
        time.sleep(moments.uniform(0, 4))
        victim = moments.choice(wait_for(lambda: worker_processes(grid), 60))
        for process in [victim, *victim.children(recursive=True)]:
            process.kill()
        workers(f"worker {number}")
    output, _ = leader.communicate(timeout=900)
    assert leader.returncode == 0, output
    rows = rows_of_cells(folder)
    assert set(Counter(row["cell"] for row in rows).values()) == {1}
    assert len(rows) == 64
    assert {row["verdict"] for row in rows} == {"measured"}
