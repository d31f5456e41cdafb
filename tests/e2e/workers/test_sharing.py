"""Workers of one profile share the cells of one model, on simulated cards: real workers, a real Prefect
server on PostgreSQL, and cells that only wait (`simulated_cells.py`)."""

from __future__ import annotations

import json
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


def begin(grid: Any, wait_for: Any) -> tuple[Any, Path]:
    """A campaign that has begun, and its folder."""
    known = set(grid.command.site.results.glob("*/campaign.json"))
    leader = grid.command.start(*WORDS)

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

    def states() -> list[str]:
        runs = grid.flow_runs(tags={"all_": [folder.name]}, deployment_id={"is_null_": False})
        return [run["state_type"] for run in runs]

    wait_for(lambda: set(states()) <= {"COMPLETED", "CRASHED", "CANCELLED"}, 30)
    assert states().count("CRASHED") == 1
