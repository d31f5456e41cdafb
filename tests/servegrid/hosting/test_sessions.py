"""Models that a session refuses when it loads."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

REFUSED = """
import sys
from importlib import import_module
from pathlib import Path
try:
    import_module(f"servegrid.hosting.{sys.argv[2]}").Session(Path(sys.argv[1]), "CPU", cuda_graph=True)
except ValueError as error:
    print(error)
"""
SAVE = """
import sys, torch
torch.jit.trace(torch.nn.Identity(), torch.zeros(2, 4)).save(sys.argv[1])
"""


@pytest.mark.parametrize(("inner", "message"), [(-1, "every axis but the batch fixed"), (4, "")])
@pytest.mark.parametrize("session", ["onnx_session", "torchscript_session"])
def test_a_cuda_graph_wants_fixed_shapes(
    interface: Any, onnx_artifact: Any, run_python: Any, session: str, inner: int, message: str
) -> None:
    io = interface([("x", "float32", (-1, inner))], [("y", "float32", (-1, inner))])
    artifact = onnx_artifact(io, [("Identity", ["x"], ["y"], {})])
    if session == "torchscript_session":
        (artifact / "interface.json").write_text(io.model_dump_json())
        run_python(SAVE, artifact / "model.pt")
    found = run_python(REFUSED, artifact, session).strip()
    assert message in found if message else found == ""


IMAGES = """
import json, sys
from pathlib import Path
from servegrid.hosting.onnx_session import for_images
folder, found = Path(sys.argv[1]), []
for dtype, rank in (("float16", 4), ("float32", 4), ("float16", 5), ("float16", 2)):
    interface = {"inputs": [{"name": "x", "dtype": dtype, "shape": [-1] * rank}], "outputs": []}
    (folder / "interface.json").write_text(json.dumps(interface))
    found.append(for_images(folder))
print(json.dumps(found))
"""


def test_only_halved_images_run_channels_last(run_python: Any, tmp_path: Path) -> None:
    (settings, apart), *others = json.loads(run_python(IMAGES, tmp_path))
    assert settings["prefer_nhwc"] == "1"
    assert apart
    assert others == [[{}, []]] * 3
