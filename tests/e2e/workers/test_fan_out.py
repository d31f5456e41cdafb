"""Campaigns on three workers, with a real Prefect server on a real PostgreSQL."""

from __future__ import annotations

import json
import shutil
from itertools import combinations
from pathlib import Path
from typing import Any

import polars as pl
import psutil
import pytest

from servegrid.campaign import leases, results
from servegrid.domain.root import ROOT

pytestmark = pytest.mark.check

MEASURED = ("ceilings", "baseline")
"""On each profile."""
BUILD = ("prepare", "export", "convert", "profile_data", "reference", "converted_answers", *MEASURED)
ONE = {
    **{"models": ["tiny_mlp"], "formats": ["onnx"], "accelerators": ["none"]},
    **{"max_concurrency": 1, "generator": "client", "workers": True},
}
PROFILES = ["test-a", "test-b", "test-c"]
CELL = "tiny_mlp-tiny-onnx-fp32-c1"
CORRECT = ("passed", "unstable")
"""How steady a cell's one point is depends on what else the machine does."""


def start_campaign(grid: Any, name: str, profiles: list[str], **more: Any) -> None:
    """By the deployment, as the UI does it; it is not waited for."""
    options = json.dumps({**ONE, "profiles": profiles, **more})
    words = ("--param", f"options={options}", "--param", f'campaign="{name}"')
    grid.prefect("deployment", "run", "sweep/nightly", *words)


def runs_of(grid: Any, campaign: str) -> list[dict[str, Any]]:
    """The campaign's `qualify` runs; those that no worker took are cancelled at its end."""
    found: list[dict[str, Any]] = grid.flow_runs(tags={"all_": [campaign]}, deployment_id={"is_null_": False})
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


def test_three_workers_share_a_campaign(grid: Any, wait_for: Any) -> None:
    start_campaign(grid, "three", PROFILES, window_s=0.3, request_count=10)
    leader = grid.campaign("three") / "leader.lock"
    wait_for(leader.exists, 60)
    wait_for(lambda: in_state(grid, "three", "COMPLETED", "CANCELLED"), 240)
    assert {run["state_type"] for run in runs_of(grid, "three") if run["infrastructure_pid"]} == {"COMPLETED"}
    cells, measurements = tables(grid, "three")
    assert sorted(cells["profile"]) == PROFILES
    assert set(cells["cell"]) == {CELL}
    assert set(cells["verdict"]) <= set(CORRECT), cells["reason"].to_list()
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
    found = [spans(grid, profile, {"tiny_mlp"}) for profile in PROFILES]
    assert max(start for start, _ in found) < min(end for _, end in found)
    steps = ("prepare", "export", "convert_onnx", "profile_data", "reference", "converted_answers")
    for step in (*steps, *MEASURED):
        logs = grid.campaign("three").glob(f"*/logs/*.{step}.log")
        ran = sum(line.startswith("$ ") for log in logs for line in log.read_text().splitlines())
        assert ran == (3 if step in MEASURED else 1), step
    wait_for(lambda: (grid.campaign("three") / "report.html").exists(), 30)


def spans(grid: Any, profile: str, models: set[str]) -> tuple[str, str]:
    """When the first build stage of the profile's runs began, and the last ended."""
    builds = [t for t in grid.api.task_runs(profile) if t["name"].split()[0] in BUILD]
    mine = [t for t in builds if t["name"].split()[-1].split("-")[0] in models]
    assert mine
    return min(t["start_time"] for t in mine), max(t["end_time"] for t in mine)


@pytest.mark.soak
@pytest.mark.timeout(1000)
def test_three_workers_share_five_models(grid: Any, store: Path) -> None:
    for kind in ("keys", "objects"):  # what other tests have built is not built again; run alone, nothing is
        if (store / kind).exists():
            shutil.copytree(store / kind, grid.command.site.store.root / kind, dirs_exist_ok=True)
    models = {path.parent.name for path in (ROOT / "models").glob("[!_]*/model.yaml")}
    assert len(models) == 5
    small = ("--max-batch-size", "1", "--max-concurrency", "1", "--request-count", "10", "--window-s", "0.3")
    one = ("--format", "onnx", "--precision", "fp32", "--accelerator", "none", "--generator", "client")
    words = ("sweep", "--workers", *small, *one, *(w for m in models for w in ("--model", m)))
    code, output = grid.command.run(*words, *(w for p in PROFILES for w in ("--profile", p)), timeout=900)
    assert code == 0, output
    campaign = max(path for path in grid.command.site.results.glob("2*"))
    cells, measurements = results.read(campaign)
    assert sorted(cells.select("model", "profile").rows()) == sorted((m, p) for m in models for p in PROFILES)
    assert set(cells["verdict"]) <= set(CORRECT), cells["reason"].to_list()
    assert measurements.height == 2 * 15
    lines = (campaign / "rows.jsonl").read_text().splitlines()
    assert len(lines) == 45, "every row once"
    assert cells["flow_run"].n_unique() == cells["worker_pid"].n_unique() == 3
    assert all(len(run) == 1 for run in cells.group_by("flow_run").agg(pl.col("profile").unique())["profile"])
    found = [spans(grid, profile, models) for profile in PROFILES]
    assert max(start for start, _ in found) < min(end for _, end in found)


def test_unknown_queue_is_refused_and_leaves_nothing(grid: Any) -> None:
    before = set(grid.command.site.results.iterdir())
    words = ("--workers", "--profile", "test-a", "--model", "tiny_mlp", "--queue", "weekly")
    code, output = grid.command.run("sweep", *words)
    assert code == 2
    assert "no deployment 'qualify/test-a' with a queue 'weekly'; run `servegrid pools create`" in output
    assert set(grid.command.site.results.iterdir()) == before


@pytest.fixture(scope="module")
def cancelled(grid: Any, wait_for: Any) -> str:
    """A campaign whose flow run was cancelled while its run worked."""
    start_campaign(grid, "cancelled", PROFILES[:1])
    wait_for(lambda: in_state(grid, "cancelled", "RUNNING"), 120)
    (parent,) = grid.flow_runs(parent_task_run_id={"is_null_": True}, state={"type": {"any_": ["RUNNING"]}})
    grid.api.post(f"flow_runs/{parent['id']}/set_state", {"state": {"type": "CANCELLING"}})
    return str(parent["id"])


def test_cancelling_a_campaign_cancels_its_runs(grid: Any, cancelled: str, wait_for: Any) -> None:
    wait_for(lambda: in_state(grid, "cancelled", "CANCELLED", "CRASHED"), 90)
    wait_for(lambda: not engines(grid), 60)
    wait_for(lambda: grid.flow_runs(id={"any_": [cancelled]})[0]["state_type"] == "CANCELLED", 30)
    code, output = grid.command.run("report", "cancelled")
    assert code == 2, output
    assert "--partial" in output
    code, output = grid.command.run("sweep", "--resume", "cancelled", "--format", "onnx")
    assert code == 2
    assert "give no others" in output


def test_cancelling_a_campaign_of_the_commands_own_process_ends_it(grid: Any, wait_for: Any) -> None:
    words = ("--model", "tiny_mlp", "--format", "onnx", "--profile", "test-b", "--generator", "client")
    process = grid.command.start("sweep", *words)
    wanted = {"name": {"any_": ["tiny_mlp (tiny) on test-b"]}, "state": {"type": {"any_": ["RUNNING"]}}}
    (run,) = wait_for(lambda: grid.flow_runs(**wanted), 60)
    name = run["parameters"]["campaign"]
    wait_for(lambda: leases.holder(grid.campaign(name) / "leader.lock"), 30)
    grid.api.post(f"flow_runs/{run['id']}/set_state", {"state": {"type": "CANCELLING"}})
    output, _ = process.communicate(timeout=60)
    assert process.returncode == 1, output
    assert f"campaign {name}: cancelled; `servegrid sweep --resume {name}` goes on" in output
    assert grid.flow_runs(id={"any_": [run["id"]]})[0]["state_type"] == "CANCELLED"
    cells, _ = tables(grid, name)
    assert "skipped" in cells["verdict"].to_list()
    wait_for(lambda: not engines(grid), 10)


def test_two_campaigns_on_one_card_end_and_their_measurements_do_not_overlap(
    grid: Any, cancelled: str
) -> None:
    words = ("--model", "tiny_mlp", "--format", "onnx", "--accelerator", "none", "--generator", "client")
    rival = grid.command.start("sweep", *words, "--max-concurrency", "1", "--profile", "test-a")
    code, output = grid.command.run("sweep", "--resume", "cancelled")
    assert code == 0, output
    output, _ = rival.communicate(timeout=300)
    assert rival.returncode == 0, output

    cells, measurements = tables(grid, "cancelled")
    assert cells["profile"].to_list() == PROFILES[:1]
    assert set(cells["verdict"]) <= set(CORRECT)
    assert measurements.height == 2
    assert json.loads((grid.campaign("cancelled") / "campaign.json").read_text())["attempt"] == 2

    _, others = results.read(max(grid.command.site.results.glob("2*")))
    times = pl.concat([measurements, others])
    assert times.height == 4
    for (start, end), (others_start, others_end) in combinations(
        times.select("started_at", "ended_at").iter_rows(), 2
    ):
        assert end <= others_start or others_end <= start
    assert cells["started_at"].min() < others["ended_at"].max(), "they ran at the same time"
    assert others["started_at"].min() < cells["ended_at"].max()
