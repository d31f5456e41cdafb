"""Sessions on an NVIDIA GPU: the answers of the CPU, at every batch size, with and without CUDA graphs.

Sums of 1024 products of normal numbers: fp32 gives them to about 1e-4, TF32 to about 1e-2.
"""

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
batches = [rng.standard_normal((size, 1024)).astype(np.float32) for size in sizes]
kinds = {"cpu": ("CPU", {}), "gpu": ("GPU", {}), "graphs": ("GPU", {"cuda_graph": True})}
models = {name: session(artifact, kind, **more) for name, (kind, more) in kinds.items()}
answers = {name: [model.run({"x": x})["y"] for x in batches] for name, model in models.items()}
for name in ("gpu", "graphs"):
    for x, y, want in zip(batches, answers[name], answers["cpu"], strict=True):
        assert y.dtype == want.dtype
        np.testing.assert_allclose(y, want, rtol=0, atol=2e-3, err_msg=f"{name}, batch {len(x)}")
"""
TORCHSCRIPT = """
import sys, torch
class Network(torch.nn.Module):
    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.register_buffer("w", torch.randn(1024, 1024))
    def forward(self, x):
        made = torch.arange(x.shape[1], device=x.device)  # traced, it names the CPU
        return torch.relu(x @ self.w) + x + made / 1024
torch.jit.trace(Network(), torch.zeros(2, 1024)).save(sys.argv[1])
"""


def test_onnx_on_the_gpu_answers_as_on_the_cpu(interface: Any, onnx_artifact: Any, run_python: Any) -> None:
    io = interface([("x", "float32", (-1, 1024))], [("y", "float32", (-1, 1024))])
    nodes = [("MatMul", ["x", "w"], ["h"], {}), ("Relu", ["h"], ["t"], {}), ("Add", ["t", "x"], ["y"], {})]
    weights = {"w": np.random.default_rng(1).standard_normal((1024, 1024)).astype(np.float32)}
    run_python(RUN, onnx_artifact(io, nodes, weights), "onnx_session")


def test_torchscript_on_the_gpu_answers_as_on_the_cpu(run_python: Any, tmp_path: Path) -> None:
    tensors = {f"{kind}puts": [{"name": n, "shape": [-1, 1024]}] for kind, n in (("in", "x"), ("out", "y"))}
    (tmp_path / "interface.json").write_text(json.dumps(tensors))
    run_python(TORCHSCRIPT, tmp_path / "model.pt")
    run_python(RUN, tmp_path, "torchscript_session")
