"""Sessions on an NVIDIA GPU: the answers of the CPU, at every batch size, with and without CUDA graphs."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tasks.core.environment import gpu_names

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not gpu_names(), reason="needs an NVIDIA GPU, and NVML sees none here"),
]

RUN = """
import json, sys
from importlib import import_module
from pathlib import Path
import numpy as np
artifact, session = Path(sys.argv[1]), import_module(f"tasks.hosting.{sys.argv[2]}").Session
rng = np.random.default_rng(0)
sizes = [1, 2, 3, 2, 8, 1]
batches = [rng.standard_normal((size, 4)).astype(np.float32) for size in sizes]
kinds = {"cpu": ("CPU", {}), "gpu": ("GPU", {}), "graphs": ("GPU", {"cuda_graph": True})}
models = {name: session(artifact, kind, **more) for name, (kind, more) in kinds.items()}
answers = {name: [model.run({"x": x})["y"] for x in batches] for name, model in models.items()}
for name in ("gpu", "graphs"):
    for x, y, want in zip(batches, answers[name], answers["cpu"], strict=True):
        assert y.dtype == want.dtype
        np.testing.assert_allclose(y, want, atol=1e-3, err_msg=f"{name}, batch {len(x)}")
"""
TORCHSCRIPT = """
import sys, torch
class Network(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("w", torch.arange(16.0).reshape(4, 4) / 16)
    def forward(self, x):
        return torch.tanh(x @ self.w) + x
torch.jit.trace(Network(), torch.zeros(2, 4)).save(sys.argv[1])
"""


def test_onnx_on_the_gpu_answers_as_on_the_cpu(interface: Any, onnx_artifact: Any, run_python: Any) -> None:
    io = interface([("x", "float32", (-1, 4))], [("y", "float32", (-1, 4))])
    nodes = [("MatMul", ["x", "w"], ["h"], {}), ("Tanh", ["h"], ["t"], {}), ("Add", ["t", "x"], ["y"], {})]
    weights = {"w": np.arange(16, dtype=np.float32).reshape(4, 4) / 16}
    run_python(RUN, onnx_artifact(io, nodes, weights), "onnx_session")


def test_torchscript_on_the_gpu_answers_as_on_the_cpu(run_python: Any, tmp_path: Path) -> None:
    tensors = {"inputs": [{"name": "x", "shape": [-1, 4]}], "outputs": [{"name": "y", "shape": [-1, 4]}]}
    (tmp_path / "interface.json").write_text(json.dumps(tensors))
    run_python(TORCHSCRIPT, tmp_path / "model.pt")
    run_python(RUN, tmp_path, "torchscript_session")
