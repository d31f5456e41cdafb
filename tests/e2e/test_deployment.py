"""`prefect deployment run 'sweep/local'`, with a real server, a real worker and a real sweep."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import httpx
import pytest

from servegrid.campaign import results
from servegrid.domain.root import ROOT
from servegrid.host import proc

pytestmark = pytest.mark.check


def prefect(command: Any, *arguments: str) -> str:
    program = [sys.executable, "-m", "prefect", "--no-prompt", *arguments]
    done = subprocess.run(program, env=command.env, cwd=ROOT, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def schedules(command: Any) -> dict[str, list[dict[str, Any]]]:
    """The schedules of each deployment, as the server has them."""
    url = f"{command.env['PREFECT_API_URL']}/deployments/filter"
    found = httpx.post(url, json={}, timeout=30.0).raise_for_status().json()
    return {entry["name"]: entry["schedules"] for entry in found}


def test_a_worker_runs_the_deployment(command: Any, tmp_path: Path, monkeypatch: Any) -> None:
    for state in ("created", "exists"):
        code, output = command.run("pools", "create")
        assert code == 0, output
        assert output.count(state) == len(list((ROOT / "gpu_profiles").glob("*.yaml"))) + 1
        assert "prefect worker start --pool gpu-h200 --limit 1" in output
    profiles = {path.stem for path in (ROOT / "gpu_profiles").glob("*.yaml")}
    assert set(schedules(command)) == profiles, "each has its deployment of `qualify`"
    prefect(command, "deploy", "--all", "--prefect-file", "deployments/prefect.yaml")
    (nightly,) = (entry for entries in schedules(command).values() for entry in entries)
    assert not nightly["active"]
    prefect(command, "deployment", "schedule", "resume", "sweep/nightly", nightly["id"])  # as the page says
    assert [entry["active"] for entry in schedules(command)["nightly"]] == [True]
    prefect(command, "deployment", "schedule", "pause", "sweep/nightly", nightly["id"])
    options = {"models": ["tiny_mlp"], "formats": ["onnx"], "generator": "client", "fixed_points": True}
    options |= {"window_s": 0.3, "request_count": 10}
    for name, value in command.env.items():
        monkeypatch.setenv(name, value)
    worker = [sys.executable, "-m", "prefect", "worker", "start", "--pool", "gpu-cpu"]
    with proc.running(worker, log_path=tmp_path / "worker.log", env=command.env, stop_s=15):
        output = prefect(
            command,
            *("deployment", "run", "sweep/local", "--watch", "--watch-interval", "2"),
            *("--param", f"options={json.dumps(options)}", "--param", 'campaign="from-a-worker"'),
        )
    assert "Completed" in output or "finished successfully" in output, output
    cells, measurements = results.read(command.site.results / "from-a-worker")
    assert cells["verdict"].item() in ("passed", "unstable")
    assert measurements.height == 2
    assert (command.site.results / "from-a-worker" / "report.html").exists()
