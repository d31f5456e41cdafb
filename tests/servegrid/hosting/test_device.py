"""A session for a GPU refuses to load without one; it never falls back to the CPU."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

LOAD = """
import importlib, sys
from pathlib import Path
sys.path.insert(0, sys.argv[1])
for name in sys.argv[3:]:
    try:
        importlib.import_module(name).Session(Path(sys.argv[2]), "GPU")
        print(name, "loaded")
    except RuntimeError as error:
        print(error)
"""
LIBRARY = Path(__file__).parents[3] / "servegrid"


@pytest.fixture
def without_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")


def test_onnx_and_torch_refuse_to_fall_back(
    run_python: Any, interface: Any, onnx_artifact: Any, without_gpu: None
) -> None:
    io = interface([("x", "int64", (-1, 3))], [("y", "int64", (-1, 3))])
    artifact = onnx_artifact(io, [("Identity", ["x"], ["y"], {})])
    onnx, torch = run_python(
        LOAD, LIBRARY, artifact, "hosting.onnx_session", "hosting.torchscript_session"
    ).splitlines()
    assert onnx.startswith("ONNX Runtime uses CPUExecutionProvider, not CUDAExecutionProvider")
    assert torch == "PyTorch sees no GPU: is a torch build with CUDA installed?"


def test_tensorflow_refuses_to_fall_back(run_python: Any, tmp_path: Path, without_gpu: None) -> None:
    """Before it looks for a model: the folder is empty."""
    (message,) = run_python(LOAD, LIBRARY, tmp_path, "hosting.savedmodel_session").splitlines()
    assert message == "TensorFlow sees no GPU: is a tensorflow build with CUDA installed?"
