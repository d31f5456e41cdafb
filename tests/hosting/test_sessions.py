"""What a session refuses before it is served."""

from __future__ import annotations

from typing import Any

import pytest

REFUSED = """
import sys
from importlib import import_module
from pathlib import Path
try:
    import_module(f"tasks.hosting.{sys.argv[2]}").Session(Path(sys.argv[1]), "CPU", cuda_graph=True)
except ValueError as error:
    print(error)
"""
SAVE = """
import sys, torch
torch.jit.trace(torch.nn.Identity(), torch.zeros(2, 4)).save(sys.argv[1])
"""


@pytest.mark.parametrize(("inner", "said"), [(-1, "every axis but the batch fixed"), (4, "")])
@pytest.mark.parametrize("session", ["onnx_session", "torchscript_session"])
def test_a_cuda_graph_wants_fixed_shapes(
    interface: Any, onnx_artifact: Any, run_python: Any, session: str, inner: int, said: str
) -> None:
    io = interface([("x", "float32", (-1, inner))], [("y", "float32", (-1, inner))])
    artifact = onnx_artifact(io, [("Identity", ["x"], ["y"], {})])
    if session == "torchscript_session":
        (artifact / "interface.json").write_text(io.model_dump_json())
        run_python(SAVE, artifact / "model.pt")
    found = run_python(REFUSED, artifact, session).strip()
    assert said in found if said else found == ""
