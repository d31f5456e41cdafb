"""Campaigns on three workers, with a real Prefect server on a real PostgreSQL."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from itertools import combinations
from typing import Any

import polars as pl
import psutil

from tasks.core import results

BUILD = ("prepare", "export", "convert", "profile_data", "reference", "baseline")
ONE = {"models": ["tiny_mlp"], "formats": ["onnx"], "generator": "client", "workers": True}
PROFILES = ["test-a", "test-b", "test-c"]
CELL = "tiny_mlp-tiny-onnx-fp32"
MEASURED = ("passed", "unstable")
"""How steady a cell's one point is depends on what else the machine does."""


def wait_for(condition: Callable[[], Any], seconds: float) -> Any:
    """What the condition gives once it gives something true."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        found = condition()
        if found:
            return found
        time.sleep(0.1)
    raise AssertionError(f"not within {seconds} s")


def start_campaign(grid: Any, name: str, profiles: list[str]) -> None:
    """By the deployment, as the UI does it; it is not waited for."""
    options = json.dumps({**ONE, "profiles": profiles})
    words = ("--param", f"options={options}", "--param", f'campaign="{name}"')
    grid.prefect("deployment", "run", "sweep/nightly", *words)


def runs_of(grid: Any, campaign: str) -> list[dict[str, Any]]:
    """The campaign's `qualify` runs."""
    found: list[dict[str, Any]] = grid.flow_runs(tags={"all_": [campaign]})
    return found


def in_state(grid: Any, campaign: str, *states: str) -> bool:
    runs = runs_of(grid, campaign)
    return bool(runs) and all(run["state_type"] in states for run in runs)


def engines(grid: Any) -> list[psutil.Process]:
    """Processes of this site that run flows, or something for one."""
    found = []
    for process in psutil.process_iter():
        try:
            ours = process.environ().get("SERVEGRID_HOME") == str(grid.command.site.home)
            line = " ".join(process.cmdline())
        except (psutil.Error, OSError):
            continue
        stays = "worker start" in line or "server start" in line or "prefect.server" in line
        if ours and not stays and process.status() != psutil.STATUS_ZOMBIE:
            found.append(process)
    return found


def tables(grid: Any, campaign: str) -> tuple[pl.DataFrame, pl.DataFrame]:
    return results.read(grid.campaign(campaign))


def test_three_workers_share_a_campaign(grid: Any) -> None:
    start_campaign(grid, "three", PROFILES)
    leader = grid.campaign("three") / "leader.lock"
    wait_for(leader.exists, 60)
    wait_for(lambda: in_state(grid, "three", "COMPLETED"), 240)
    cells, measurements = tables(grid, "three")
    assert sorted(cells["profile"]) == PROFILES
    assert set(cells["cell"]) == {CELL}
    assert set(cells["verdict"]) <= set(MEASURED), cells["reason"].to_list()
    assert sorted(measurements["profile"]) == sorted(2 * PROFILES)
    lines = (grid.campaign("three") / "rows.jsonl").read_text().splitlines()
    assert len(lines) == 9, "every row once"

    # Each row says who wrote it: three processes, three runs, each on its profile.
    assert cells["worker_pid"].n_unique() == cells["flow_run"].n_unique() == 3
    runs = {run["id"]: run for run in runs_of(grid, "three")}
    for row in (*cells.iter_rows(named=True), *measurements.iter_rows(named=True)):
        assert row["profile"] in runs[row["flow_run"]]["tags"]
        assert str(row["worker_pid"]) in runs[row["flow_run"]]["infrastructure_pid"]

    # They built at the same time, and nothing twice.
    spans = []
    for profile in PROFILES:
        builds = [t for t in grid.api.task_runs(profile) if t["name"].split()[0] in BUILD]
        assert len(builds) == len(BUILD)
        spans.append((min(t["start_time"] for t in builds), max(t["end_time"] for t in builds)))
    assert max(start for start, _ in spans) < min(end for _, end in spans)
    for step in ("prepare", "export", "convert_onnx", "profile_data", "reference", "baseline"):
        logs = grid.campaign("three").glob(f"*/logs/*.{step}.log")
        ran = sum(line.startswith("$ ") for log in logs for line in log.read_text().splitlines())
        assert ran == (3 if step == "baseline" else 1), step  # a baseline is measured on each profile
    wait_for(lambda: (grid.campaign("three") / "report.html").exists(), 30)


def test_two_campaigns_on_one_card_never_measure_at_the_same_time(grid: Any) -> None:
    words = ("sweep", "--model", "tiny_mlp", "--format", "onnx", "--generator", "client")
    both = [grid.command.start(*words, "--profile", "test-a") for _ in range(2)]
    for process in both:
        output, _ = process.communicate(timeout=300)
        assert process.returncode == 0, output
    latest = sorted(grid.command.site.results.iterdir(), key=lambda path: path.stat().st_ctime)[-2:]
    spans = [
        (folder.name, row["started_at"], row["ended_at"])
        for folder in latest
        for row in results.read(folder)[1].iter_rows(named=True)
    ]
    assert len(spans) == 4
    for (one, start, end), (other, others_start, others_end) in combinations(spans, 2):
        assert end <= others_start or others_end <= start, (one, other)


def test_cancelling_a_campaign_cancels_its_runs_and_it_can_be_resumed(grid: Any) -> None:
    start_campaign(grid, "cancelled", PROFILES[:2])
    wait_for(lambda: in_state(grid, "cancelled", "RUNNING"), 90)
    (parent,) = grid.flow_runs(parent_task_run_id={"is_null_": True}, state={"type": {"any_": ["RUNNING"]}})
    body = {"state": {"type": "CANCELLING"}}
    grid.api.post(f"flow_runs/{parent['id']}/set_state", body)
    wait_for(lambda: in_state(grid, "cancelled", "CANCELLED", "CRASHED", "COMPLETED"), 60)
    assert not in_state(grid, "cancelled", "COMPLETED")
    wait_for(lambda: not engines(grid), 60)
    wait_for(lambda: grid.flow_runs(id={"any_": [parent["id"]]})[0]["state_type"] == "CANCELLED", 30)

    code, output = grid.command.run("report", "cancelled")
    assert code == 2, output
    assert "--partial" in output
    code, output = grid.command.run("sweep", "--resume", "cancelled", "--format", "onnx")
    assert code == 2
    assert "give no others" in output
    code, output = grid.command.run("sweep", "--resume", "cancelled")
    assert code == 0, output
    cells, measurements = tables(grid, "cancelled")
    assert sorted(cells["profile"]) == PROFILES[:2]
    assert set(cells["verdict"]) <= set(MEASURED)
    assert measurements.height == 4
    assert json.loads((grid.campaign("cancelled") / "campaign.json").read_text())["attempt"] == 2
