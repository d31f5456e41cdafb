"""Large campaigns: what Prefect costs when the cells themselves cost nothing. `make soak` runs these."""

from __future__ import annotations

import re
import subprocess
import sys
import threading
import time
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from servegrid.campaign import results
from servegrid.plan.options import SweepOptions
from servegrid.store.site import default_site
from tasks.planning import plan

pytestmark = pytest.mark.soak

NOOP = """
import sys
from prefect import task
from prefect.cache_policies import NO_CACHE
import flows.cell as cells
from servegrid.cli.main import main
from tasks.caching import build_task, ensure
from servegrid.store.job import Fields
from servegrid.store.store import BuildRequest
from servegrid.checks.verdict import Correctness
from servegrid.checks.invariance import Invariance
from servegrid.domain.arrays import TensorMatch

STAGES = (
    *("prepare", "export", "convert", "profile_data", "reference", "converted_answers", "ceilings"),
    "baseline",
)
RIGHT = TensorMatch(output="y", largest_difference=0.0, excess=0, least_cosine=None, agreement=1.0)


@build_task
def build(request, at):
    return at.site.store.build(request, lambda folder: (folder / "file").write_text(request.key))


@task(task_run_name="nothing {at.cell}", cache_policy=NO_CACHE)
def nothing(at):
    pass


def build_cell(plugin, cell, campaign, at, make=ensure):
    made = []
    for stage in STAGES:
        sources = {"cell": cell.name if stage == "convert" else ""}
        made.append(make(build, BuildRequest(stage=stage, fields=Fields(), sources=sources), at))
    first, _, converted, samples, reference, *_ = made
    return cells.Built(
        prepared=first, converted=converted, samples=samples, reference=reference, baseline=None,
        ceilings=None,
    )


def measure_cell(plugin, cell, built, choice, at, result):
    for _ in range(6):  # configure, deploy twice, correctness, performance twice
        nothing(at)
    result.correctness = Correctness(
        tensors=(RIGHT,), scores=None, invariance=Invariance(neighbour=(RIGHT,)), clients=8, batches={}
    )


cells.build_cell, cells.measure_cell = build_cell, measure_cell
sys.argv[0] = "servegrid"
main()
"""
"""`servegrid` whose cells run every task, in the real flows, with a body that does nothing."""


def with_instances(plugins: Path, count: int) -> None:
    """Two cells, one a format, for each number of instances up to `count`."""
    spec = plugins / "tiny_mlp" / "model.yaml"
    instances = f"instances: {list(range(1, count + 1))}"
    spec.write_text(
        re.sub(r"max_queue_delay_us: 1\n", rf"max_queue_delay_us: 1\n      {instances}\n", spec.read_text())
    )


def test_thousand_cells_are_planned_in_two_seconds(plugins: Path) -> None:
    with_instances(plugins, 500)
    site = default_site().model_copy(update={"models": plugins})
    start = time.perf_counter()
    (entry,) = plan(SweepOptions(models=("tiny_mlp",)), site)
    seconds = time.perf_counter() - start
    assert len(entry.plan.cells) == 1000
    print(f"1000 cells planned in {seconds:.2f} s")
    assert seconds < 2


class Health:
    """Asks a Prefect server for its health ten times a second, and keeps how long it took."""

    def __init__(self, url: str) -> None:
        self.seconds: list[float] = []
        self._url = f"{url}/health"
        self._end = threading.Event()
        self._thread = threading.Thread(target=self._ask, daemon=True)

    def __enter__(self) -> Health:
        self._thread.start()
        return self

    def __exit__(self, *raised: object) -> None:
        self._end.set()
        self._thread.join()

    def _ask(self) -> None:
        while not self._end.wait(0.1):
            start = time.perf_counter()
            with urllib.request.urlopen(self._url, timeout=30) as answer:
                assert answer.status == 200
            self.seconds.append(time.perf_counter() - start)


def test_two_hundred_cells_cost_less_than_a_second_each(
    make_grid: Callable[[Path], Any], plugins: Path
) -> None:
    with_instances(plugins, 100)
    grid = make_grid(plugins)
    words = [sys.executable, "-c", NOOP, "sweep", "--model", "tiny_mlp", "--generator", "client"]
    words += ["--profile", "test-a"]
    with Health(grid.api.url) as health:
        start, peak = time.perf_counter(), 0
        process = subprocess.Popen(
            words, env=grid.command.env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
        )
        limit = threading.Timer(600, process.kill)
        limit.daemon = True
        limit.start()
        output: list[str] = []
        assert process.stdout is not None
        for line in process.stdout:
            output.append(line)
            status = Path(f"/proc/{process.pid}/status").read_text()
            peak = max([peak, *map(int, re.findall(r"VmHWM:\s+(\d+) kB", status))])
        assert process.wait() == 0, "".join(output[-20:])
        wall = time.perf_counter() - start
    cells, _ = results.read(grid.command.campaign)
    assert cells.height == 200
    assert set(cells["verdict"]) == {"measured"}
    cell_s = cells.select(pl.col("orchestration_s").mean()).item()
    p99 = sorted(health.seconds)[int(0.99 * len(health.seconds))]
    print(
        f"200 cells in {wall:.0f} s: {wall / 200:.2f} s a cell, {cell_s:.2f} s of it in its row; "
        f"/api/health p99 {1e3 * p99:.0f} ms of {len(health.seconds)}; flow process {peak / 1024:.0f} MB"
    )
    assert wall / 200 < 1
    assert p99 < 1
    assert peak < 500 * 1024
    for text in ("".join(output), (grid.root / "server.log").read_text()):
        assert "database is locked" not in text
