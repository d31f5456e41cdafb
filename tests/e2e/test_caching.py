"""Which build stages an edit rebuilds, as Prefect's task-run states tell it."""

from __future__ import annotations

import json
import subprocess
import sys
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

NETWORK = ["reference", "count", "baseline"]
STAGES = ["prepare", "export", "convert", "profile_data", "reference", "count", "ceilings", "baseline"]

BUILD = """
import sys
from prefect import flow, tags
from flows.options import SweepOptions
from flows.planning import plan
from flows.qualify import build_cell
from tasks.core.build import Workplace
from tasks.core.site import default_site

@flow
def build():
    site = default_site()
    options = SweepOptions(models=("tiny_mlp",), variant="full", formats=("onnx",))
    (model,) = plan(options, site)
    (cell,) = model.plan.cells
    at = Workplace(
        site=site, plugin=model.plugin.folder, logs=site.results, profile="cpu", cell=cell.name, timeout_s=120
    )
    build_cell(model.plugin, cell, "campaign", at)

with tags(sys.argv[1]):
    build()
"""


@pytest.fixture
def command(make_command: Callable[..., Any], plugins: Path) -> Any:
    """A command with a store of its own: what is in it is damaged, and says what was built."""
    return make_command(plugins, own_store=True)


@pytest.fixture
def rebuilt(command: Any, api: Any) -> Callable[..., list[str]]:
    """Build the ONNX cell of tiny_mlp; the stages whose task run was not `Cached`."""

    def build(extra_path: Path | None = None) -> list[str]:
        tag = uuid.uuid4().hex
        env = command.env | ({"PYTHONPATH": str(extra_path)} if extra_path else {})
        subprocess.run([sys.executable, "-c", BUILD, tag], check=True, env=env)
        runs = api.task_runs(tag)
        assert [run["name"].split()[0] for run in runs] == STAGES
        return [run["name"].split()[0] for run in runs if run["state"]["name"] != "Cached"]

    return build


def edit(path: Path, old: str, new: str) -> None:
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new))


def write_weights(command: Any, scale: float) -> None:
    folder = command.site.sources / "tiny_mlp"
    folder.mkdir(parents=True, exist_ok=True)
    np.save(folder / "weights.npy", np.arange(12, dtype=np.float32).reshape(3, 4) * scale)


def test_each_edit_rebuilds_exactly_the_stages_that_read_it(
    command: Any, plugins: Path, rebuilt: Callable[..., list[str]], tmp_path: Path
) -> None:
    model = plugins / "tiny_mlp"
    spec = model / "model.yaml"
    write_weights(command, 1.0)
    assert rebuilt() == STAGES
    assert rebuilt() == []

    # What a conversion must hold is read by it, what a campaign must reach by no build stage.
    edit(spec, "absolute: 0.0001", "absolute: 0.0002")
    assert rebuilt() == ["convert"], "tolerance"
    edit(spec, "threshold: 0.9", "threshold: 0.8")
    assert rebuilt() == [], "threshold"
    edit(spec, "max_queue_delay_us: 1", "max_queue_delay_us: 100")
    assert rebuilt() == [], "serving"
    edit(model / "metrics.py", '"""The task metric: accuracy."""', '"""Top-1 accuracy."""')
    assert rebuilt() == [], "metrics.py"

    # The network changes what it computes.
    edit(model / "model.py", "bias=False).eval()", "bias=False).eval().requires_grad_(False)")
    assert rebuilt() == ["export", *NETWORK], "model.py, the same graph: convert finds its export"
    edit(model / "model.py", "np.load(weights)", "2 * np.load(weights)")
    assert rebuilt() == ["export", "convert", *NETWORK], "model.py, another graph"

    # Data: its code, its amount.
    edit(model / "dataloader.py", '"""The points, in order."""', '"""The points."""')
    assert rebuilt() == ["export", "profile_data"], "dataloader.py, the same data"
    edit(spec, "samples: 100", "samples: 50")
    assert rebuilt() == ["profile_data", *NETWORK], "sample count"

    # What prepare reads: its code, and the user's files.
    edit(model / "prepare.py", '"""Checkpoint', '"""Weights')
    assert rebuilt() == ["prepare"], "prepare.py, the same files"
    write_weights(command, 3.0)
    assert rebuilt() == [stage for stage in STAGES if stage != "ceilings"], "checkpoint"

    # How it is exported and converted.
    edit(spec, "opset: 13", "opset: 14")
    assert rebuilt() == ["export", "convert"], "opset"
    newer = tmp_path / "libraries"
    fake = newer / "onnxruntime-99.0.dist-info"
    fake.mkdir(parents=True)
    (fake / "METADATA").write_text("Metadata-Version: 2.1\nName: onnxruntime\nVersion: 99.0\n")
    assert rebuilt(newer) == ["convert"], "library version"


def test_a_damaged_artifact_is_built_again(command: Any, rebuilt: Callable[..., list[str]]) -> None:
    write_weights(command, 1.0)
    rebuilt()
    for entry in (command.site.home / "store" / "keys").glob("*.json"):
        document = json.loads(entry.read_text())
        if document["request"]["stage"] == "convert_onnx":
            artifact = command.site.home / "store" / document["artifact"]["path"] / "model.onnx"
    artifact.write_bytes(artifact.read_bytes()[:-1])

    env = command.env
    tag = uuid.uuid4().hex
    result = subprocess.run(
        [sys.executable, "-c", BUILD, tag], check=True, env=env, capture_output=True, text=True
    )
    assert "convert_onnx is damaged or gone" in result.stderr + result.stdout

    # Prefect's own records, as a kill may leave them.
    for number, record in enumerate((command.site.home / "prefect-results").iterdir()):
        record.write_bytes(record.read_bytes()[: 20 * (number % 2)])
    assert rebuilt() == STAGES, "their tasks run, and find the artifacts"
    assert rebuilt() == []
