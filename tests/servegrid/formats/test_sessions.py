"""Sessions refuse what they cannot run before they are served."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

OPEN = """
import json, sys
from importlib import import_module
from pathlib import Path
folder, artifact, kind, graph = sys.argv[1:]
try:
    import_module(f"servegrid.formats.{folder}.session").Session(Path(artifact), kind, cuda_graph=bool(graph))
    print("opened")
except (RuntimeError, ValueError) as error:
    print(error)
"""
SAVE = """
import sys, torch
torch.jit.trace(torch.nn.Identity(), torch.zeros(2, 4)).save(sys.argv[1])
"""


@pytest.fixture
def identity(interface: Any, onnx_artifact: Any, run_python: Any) -> Any:
    """`identity(axis)`: an artifact with an ONNX graph and a TorchScript module of shape [batch, axis]."""

    def make(axis: int) -> Path:
        io = interface([("x", "float32", (-1, axis))], [("y", "float32", (-1, axis))])
        artifact: Path = onnx_artifact(io, [("Identity", ["x"], ["y"], {})])
        (artifact / "interface.json").write_text(io.model_dump_json())
        run_python(SAVE, artifact / "model.pt")
        return artifact

    return make


@pytest.mark.parametrize("folder", ["onnx", "torchscript"])
def test_cuda_graph_needs_fixed_shapes(identity: Any, run_python: Any, folder: str) -> None:
    assert "cuda_graph" in run_python(OPEN, folder, identity(-1), "CPU", "graph")
    assert run_python(OPEN, folder, identity(4), "CPU", "graph").split() == ["opened"]


@pytest.mark.parametrize(
    ("folder", "library"),
    [("onnx", "ONNX Runtime"), ("torchscript", "PyTorch"), ("savedmodel", "TensorFlow")],
)
def test_session_without_its_gpu_does_not_fall_back_to_the_cpu(
    identity: Any, run_python: Any, folder: str, library: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """TensorFlow looks for the GPU before it looks for the model, which is not there."""
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    (said,) = run_python(OPEN, folder, identity(4), "GPU", "").splitlines()
    assert said.startswith(library)
