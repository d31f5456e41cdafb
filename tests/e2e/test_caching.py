"""The build stages that an edit rebuilds, read from Prefect's task-run states."""

from __future__ import annotations

import json
import subprocess
import sys
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytestmark = pytest.mark.check

FOLDER = ["prepare", "export", "profile_data", "reference", "baseline"]
"""The stages that run Python files of the model's folder."""
STAGES = [
    *("prepare", "export", "convert", "profile_data", "reference", "converted_answers", "ceilings"),
    "baseline",
]

BUILD = """
import sys
from prefect import flow, tags
from servegrid.plan.options import SweepOptions
from tasks.planning import plan
from flows.cell import build_cell
from servegrid.store.build import Workplace
from servegrid.store.site import default_site

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

for line in sys.stdin:
    with tags(line.strip()):
        build()
    print("built", flush=True)
"""
"""Builds the ONNX cell of tiny_mlp for each tag that it reads."""


@pytest.fixture(scope="module")
def plugins(make_plugins: Callable[[Path], Path], tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_plugins(tmp_path_factory.mktemp("models"))


@pytest.fixture(scope="module")
def command(make_command: Callable[..., Any], plugins: Path) -> Any:
    """A command with a store of its own: what is in it is damaged, and says what was built."""
    command = make_command(plugins, own_store=True)
    write_weights(command, 1.0)
    return command


class Builder:
    """A process that builds the cell, again and again."""

    def __init__(self, env: dict[str, str], log: Path, api: Any) -> None:
        self.log, self.api = log, api
        with log.open("a") as file:
            self.process = subprocess.Popen(
                [sys.executable, "-c", BUILD],
                env=env,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=file,
                text=True,
            )

    def build(self) -> list[dict[str, Any]]:
        """Build the cell; its task runs."""
        tag = uuid.uuid4().hex
        assert self.process.stdin is not None and self.process.stdout is not None
        self.process.stdin.write(tag + "\n")
        self.process.stdin.flush()
        assert "built\n" in iter(self.process.stdout.readline, ""), self.log.read_text()
        runs: list[dict[str, Any]] = self.api.task_runs(tag, at_least=len(STAGES))
        return runs

    def rebuilt(self) -> list[str]:
        """Build the cell; the stages whose task run was not `Cached`."""
        runs = self.build()
        assert [run["name"].split()[0] for run in runs] == STAGES
        return [run["name"].split()[0] for run in runs if run["state"]["name"] != "Cached"]

    def end(self) -> None:
        assert self.process.stdin is not None
        self.process.stdin.close()
        self.process.wait(timeout=60)


@pytest.fixture(scope="module")
def make_builder(
    command: Any, api: Any, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Callable[..., Builder]]:
    """A builder of the cell; with `PYTHONPATH`, if wanted."""
    made: list[Builder] = []

    def make(extra_path: Path | None = None) -> Builder:
        env = command.env | ({"PYTHONPATH": str(extra_path)} if extra_path else {})
        made.append(Builder(env, tmp_path_factory.mktemp("builder") / "log", api))
        return made[-1]

    yield make
    for builder in made:
        builder.end()


@pytest.fixture(scope="module")
def builder(make_builder: Callable[..., Builder]) -> Builder:
    """One that has built every stage once."""
    builder = make_builder()
    assert builder.rebuilt() == STAGES
    return builder


@pytest.fixture
def rebuilt(builder: Builder) -> Callable[[], list[str]]:
    return builder.rebuilt


def write_weights(command: Any, scale: float) -> None:
    folder = command.site.sources / "tiny_mlp"
    folder.mkdir(parents=True, exist_ok=True)
    np.save(folder / "weights.npy", np.arange(12, dtype=np.float32).reshape(3, 4) * scale)


def test_each_edit_rebuilds_exactly_the_stages_that_read_it(
    command: Any,
    plugins: Path,
    rebuilt: Callable[[], list[str]],
    make_builder: Callable[..., Builder],
    tmp_path: Path,
    edit: Any,
) -> None:
    model = plugins / "tiny_mlp"
    spec = model / "model.yaml"
    assert rebuilt() == []

    # A conversion reads its tolerances; no build stage reads the threshold of the metric.
    edit(spec, "absolute: 0.0001", "absolute: 0.0002")
    assert rebuilt() == ["convert"], "tolerance"
    edit(spec, "threshold: 0.9", "threshold: 0.8")
    assert rebuilt() == [], "threshold"
    edit(spec, "max_queue_delay_us: 1", "max_queue_delay_us: 100")
    assert rebuilt() == [], "serving"
    edit(model / "metrics.py", '"""The task metric: accuracy."""', '"""Top-1 accuracy."""')
    assert rebuilt() == [], "metrics.py"

    # Any file of the folder can be read by any of the stages that run its Python files.
    edit(model / "model.py", "bias=False).eval()", "bias=False).eval().requires_grad_(False)")
    assert rebuilt() == FOLDER, "model.py, the same graph: convert finds its export"
    edit(model / "model.py", "np.load(weights)", "2 * np.load(weights)")
    assert rebuilt() == [stage for stage in STAGES if stage != "ceilings"], "model.py, another graph"
    (model / "words.txt").write_text("read when model.py runs")
    assert rebuilt() == FOLDER, "a file that no module imports"
    edit(spec, "samples: 100", "samples: 50")
    assert rebuilt() == ["profile_data", "reference", "converted_answers", "baseline"], "sample count"
    write_weights(command, 3.0)
    assert rebuilt() == [stage for stage in STAGES if stage != "ceilings"], "checkpoint"

    # How it is exported and converted.
    edit(spec, "opset: 13", "opset: 14")
    assert rebuilt() == ["export", "convert", "converted_answers"], "opset"
    newer = tmp_path / "libraries"
    fake = newer / "onnxruntime-99.0.dist-info"
    fake.mkdir(parents=True)
    (fake / "METADATA").write_text("Metadata-Version: 2.1\nName: onnxruntime\nVersion: 99.0\n")
    assert make_builder(newer).rebuilt() == ["convert", "converted_answers"], "library version"


def test_a_damaged_artifact_is_built_again(command: Any, builder: Builder) -> None:
    store, damaged = command.site.home / "store", {}
    for entry in (store / "keys").glob("*.json"):
        document = json.loads(entry.read_text())
        artifact = store / document["artifact"]["path"] / "model.onnx"
        if document["request"]["stage"] == "convert_onnx" and artifact not in damaged:
            damaged[artifact] = whole = artifact.read_bytes()
            artifact.write_bytes(whole[:-1])
    assert "convert_onnx is damaged or missing" not in builder.log.read_text()
    builder.build()
    assert "convert_onnx is damaged or missing" in builder.log.read_text()
    assert [artifact.read_bytes() == whole for artifact, whole in damaged.items()].count(True) == 1

    # Prefect's own records, as a kill may leave them.
    for number, record in enumerate((command.site.home / "prefect-results").iterdir()):
        record.write_bytes(record.read_bytes()[: 20 * (number % 2)])
    assert builder.rebuilt() == STAGES, "their tasks run, and find the artifacts"
    assert builder.rebuilt() == []
