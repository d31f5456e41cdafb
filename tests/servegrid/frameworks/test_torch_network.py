"""A plug-in's PyTorch network, called for its export and its reference answers."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from servegrid.frameworks.steps import parse_fields
from servegrid.store.job import Job

STEPS = """
import sys
from pathlib import Path
from servegrid.frameworks import framework_steps
from servegrid.frameworks.steps import read_job
for path in sys.argv[1:]:
    job = read_job(Path(path))
    getattr(framework_steps, job.step)(job)
"""
DATA = """
import numpy as np
def get_dataloader_fn(batch_size):
    def batches():
        yield np.arange(batch_size), {"x": np.arange(batch_size * 3, dtype=np.float32).reshape(-1, 3)}, {}
    return batches
"""
MODEL = """
import torch
class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("kept", torch.zeros(2, 3))
    def forward(self, x):
        {forward}
def get_model():
    return Net().eval(), {{"inputs": ["x"], "outputs": ["y"]}}
"""
FORWARDS = {
    "writes_into_its_input": "x.mul_(2.0); return x + 1.0",
    "answers_with_its_input": "return x.mul_(2.0).add_(1.0)",
    "answers_with_a_buffer": "self.kept.copy_(x * 2.0 + 1.0); return self.kept",
}


@pytest.fixture
def jobs(tmp_path: Path) -> Callable[[str], list[Path]]:
    """An export and a reference of four samples, in batches of two, of a network with this forward."""

    def make(forward: str) -> list[Path]:
        plugin, samples = tmp_path / "plugin", tmp_path / "samples"
        plugin.mkdir()
        samples.mkdir()
        (plugin / "model.py").write_text(MODEL.format(forward=forward))
        (plugin / "dataloader.py").write_text(DATA)
        x = np.arange(12, dtype=np.float32).reshape(4, 3)
        np.savez(samples / "samples.npz", allow_pickle=False, **{"x/x": x})
        tensor = {"dtype": "float32", "shape": (-1, 3)}
        interface = {"inputs": [{"name": "x"} | tensor], "outputs": [{"name": "y"} | tensor]}
        shared: dict[str, Any] = {"framework": "torch", "parameters": {}, "interface": interface}
        own = {"export": {"format": "ts-trace", "opset": None}, "reference": {"batch_size": 2}}
        paths = []
        for step, more in own.items():
            fields = parse_fields(step, shared | more)
            (tmp_path / step).mkdir()
            inputs = {"samples": samples}
            job = Job(step=step, fields=fields, inputs=inputs, plugin=plugin, output=tmp_path / step)
            paths.append(tmp_path / f"{step}.json")
            paths[-1].write_text(job.model_dump_json())
        return paths

    return make


@pytest.mark.parametrize("kind", ["writes_into_its_input", "answers_with_its_input"])
def test_a_forward_that_changes_its_input_leaves_the_example_as_it_was(
    kind: str, jobs: Callable[[str], list[Path]], run_python: Callable[..., str], tmp_path: Path
) -> None:
    run_python(STEPS, *jobs(FORWARDS[kind]))
    with np.load(tmp_path / "export" / "example.npz") as example:
        np.testing.assert_array_equal(example["x/x"], np.arange(6).reshape(2, 3))
        np.testing.assert_array_equal(example["y/y"], example["x/x"] * 2 + 1)
    _check_reference(tmp_path)


def test_an_answer_that_the_next_call_overwrites_is_kept(
    jobs: Callable[[str], list[Path]], run_python: Callable[..., str], tmp_path: Path
) -> None:
    _, reference = jobs(FORWARDS["answers_with_a_buffer"])
    run_python(STEPS, reference)
    _check_reference(tmp_path)


def _check_reference(folder: Path) -> None:
    with np.load(folder / "reference" / "outputs.npz") as outputs:
        np.testing.assert_array_equal(outputs["y"], np.arange(12).reshape(4, 3) * 2.0 + 1)
    assert json.loads((folder / "reference" / "count.json").read_text())
