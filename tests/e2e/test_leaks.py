"""Three hundred cells in a row, each with a server and shared memory of its own: what a campaign holds open
stays flat. `make soak` runs this; SERVEGRID_SOAK_CELLS makes it shorter."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psutil
import pytest

pytestmark = pytest.mark.soak

CELLS = int(os.environ.get("SERVEGRID_SOAK_CELLS", "300"))
WARM = 5
"""Cells after which what is opened once is open."""
MEMORY_MB = 0.3
"""The memory that the command may gain with each cell: its own record of the cells, and Prefect's."""

NOOP = """
import sys
import flows.cell as cells
from contextlib import ExitStack
from servegrid.campaign.layout import ProfileLayout
from servegrid.cli.main import main
from servegrid.checks.verdict import Correctness
from servegrid.checks.invariance import Invariance
from servegrid.loadgen.client.regions import region
from servegrid.domain.arrays import TensorMatch
from servegrid.servers import server
from servegrid.servers.connection import connect

RIGHT = TensorMatch(output="y", largest_difference=0.0, excess=0, least_cosine=None, agreement=1.0)


def build_cell(plugin, cell, campaign, at):
    ref = at.site.store.build(
        cells.prepare.request(plugin, cell.product, at.site), lambda folder: (folder / "file").touch()
    )
    return cells.Built(
        prepared=ref, converted=ref, samples=ref, reference=ref, baseline=None, ceilings=None
    )


def measure_cell(plugin, cell, built, choice, at, record):
    repository = ProfileLayout(folder=at.logs.parent).repository(cell.name)
    repository.mkdir(parents=True)
    with server(choice, at.site, repository, at.logs / f"{cell.name}.log") as running:
        with connect(running.grpc_url, running.channel) as client, ExitStack() as stack:
            region(stack, client, "system", f"{running.shm_prefix}region", 2**20, [])
    result.correctness = Correctness(
        tensors=(RIGHT,), scores=None, invariance=Invariance(neighbour=(RIGHT,)), clients=8, batches={}
    )


cells.build_cell, cells.measure_cell = build_cell, measure_cell
sys.argv[0] = "servegrid"
main()
"""
"""`servegrid` whose cells build and measure nothing; each starts a real server and has a region there."""


def test_a_long_campaign_holds_no_more_open_at_its_end_than_at_its_beginning(
    make_command: Callable[..., Any], plugins: Path
) -> None:
    spec = plugins / "tiny_mlp" / "model.yaml"
    instances = f"instances: {list(range(1, CELLS // 2 + 1))}"
    spec.write_text(
        re.sub(r"max_queue_delay_us: 1\n", rf"max_queue_delay_us: 1\n      {instances}\n", spec.read_text())
    )
    command = make_command(plugins, own_store=True)
    shared = set(Path("/dev/shm").iterdir())
    with tempfile.TemporaryDirectory() as temporary:
        words = [sys.executable, "-c", NOOP, "sweep", "--model", "tiny_mlp", "--generator", "client"]
        process = subprocess.Popen(
            words,
            env=command.env | {"TMPDIR": temporary},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        limit = threading.Timer(20 * CELLS, process.kill)
        limit.daemon = True
        limit.start()
        own, seen, output = psutil.Process(process.pid), [], []
        assert process.stdout is not None
        for line in process.stdout:
            output.append(line)
            cell = re.search(r": cell (\d+) of \d+$", line)
            if cell and int(cell[1]) > len(seen):  # Prefect's own handler prints it again
                files = len(list(Path(temporary).rglob("*")))
                ours = {p for p in set(Path("/dev/shm").iterdir()) - shared if p.name.startswith("servegrid")}
                children = len(own.children(recursive=True))
                seen.append((own.num_fds(), own.memory_info().rss / 2**20, files, len(ours), children))
        assert process.wait() == 0, "".join(output[-20:])
        limit.cancel()
    assert len(seen) == CELLS
    for number, name in enumerate(("descriptors", "MB", "temporary files", "regions", "processes")):
        of_all = [found[number] for found in seen]
        then, now, most = of_all[WARM], of_all[-1], max(of_all)
        print(f"{name}: {then:.0f} after {WARM} cells, {now:.0f} after {CELLS}, at most {most:.0f}")
    first, last = seen[WARM], seen[-1]
    assert last[0] <= first[0] + 5, "descriptors"
    assert last[1] <= first[1] + MEMORY_MB * (CELLS - WARM) + 5, "memory"
    assert last[2] <= first[2], "temporary files"
    assert last[3] == 0, "regions"
    assert last[4] <= first[4], "processes"
