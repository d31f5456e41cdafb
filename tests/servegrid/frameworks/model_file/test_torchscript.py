"""TorchScript files are read; what is none is not run, pickles least of all."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml

from servegrid.domain.spec import ModelSpec

TORCHSCRIPT = """
import pickle, zipfile
import torch
class Two(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = torch.nn.Embedding(2, 4)
    def forward(self, ids, scale):
        h = self.embed(ids).mean(1) * scale
        return h, h.argmax(1, keepdim=True)
class Named(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> dict[str, torch.Tensor]:
        return {"y": x}
example = (torch.zeros(2, 5, dtype=torch.int64), torch.ones(2, 1))
torch.jit.trace(Two().eval(), example).save(f"{folder}/two.pt")
torch.jit.trace(Named().eval(), torch.ones(2, 5), strict=False).save(f"{folder}/named.pt")
torch.save({"a": torch.ones(2)}, f"{folder}/state.pt")
class Runs:
    def __reduce__(self):
        import os
        return (os.system, ("touch ran",))
torch.save(Runs(), f"{folder}/hostile.pt")
torch.save(Runs(), f"{folder}/hostile-legacy.pt", _use_new_zipfile_serialization=False)
whole = (Path(folder) / "two.pt").read_bytes()
(Path(folder) / "truncated.pt").write_bytes(whole[: len(whole) // 2])
(Path(folder) / "empty.pt").write_bytes(b"")
(Path(folder) / "text.pt").write_text("<!doctype html>")
def rewrite(name, part, content):
    with zipfile.ZipFile(f"{folder}/two.pt") as old, zipfile.ZipFile(f"{folder}/{name}.pt", "w") as new:
        for entry in old.namelist():
            new.writestr(entry, content if entry.endswith(part) else old.read(entry))
rewrite("hostile-data", "/data.pkl", pickle.dumps(Runs(), protocol=2))
rewrite("hostile-constants", "/constants.pkl", pickle.dumps(Runs(), protocol=2))
rewrite("hostile-code", ".py", b"import os; os.system('touch ran')")
rewrite("no-code", ".py", b"")
with zipfile.ZipFile(f"{folder}/zip.pt", "w") as file:
    file.writestr("a", "b")
names = ("hostile", "hostile-legacy", "hostile-data", "hostile-constants", "hostile-code", "no-code", "zip")
names += ("truncated", "empty", "text")
cases = [{"id": name, "file": f"{name}.pt", "shapes": {"ids": [1, 5]}} for name in names] + [
    {"id": "pickle", "file": "pickle"},
    {"id": "two", "file": "two.pt", "samples": "two.npz"},
    {"id": "no-shape", "file": "two.pt", "shapes": {"ids": [1, 5]}},
    {"id": "no-type", "file": "two.pt", "shapes": {"ids": [1, 5], "scale": [1, 1]}},
    {"id": "named", "file": "named.pt", "shapes": {"x": [1, 5]}},
    {"id": "state", "file": "state.pt"},
]
"""


@pytest.fixture(scope="module")
def answers(files: Path, ask: Callable[..., Any]) -> dict[str, str]:
    """The message of one process for every file."""
    np.savez(files / "two.npz", ids=np.array([[0, 1, 1, 0, 1]] * 3), scale=np.ones((3, 1), np.float32))
    return ask("torchscript", TORCHSCRIPT)


NO_TORCHSCRIPT = (
    *("hostile", "hostile-legacy", "hostile-data", "hostile-constants", "hostile-code", "no-code", "zip"),
    *("truncated", "empty", "text", "pickle", "state"),
)


@pytest.mark.parametrize("name", NO_TORCHSCRIPT)
@pytest.mark.fault(
    "Inputs: TorchScript files and pickles",
    "one line that says what is wrong with the file; nothing of it is kept or run",
)
def test_a_file_that_is_no_torchscript_is_not_run(name: str, answers: dict[str, str], happened: Any) -> None:
    message = answers[name]
    assert message.startswith("not a file of torch.jit.save: ")
    assert "\n" not in message
    assert not Path("ran").exists()
    happened(message)


def test_torchscript_files(files: Path, answers: dict[str, str]) -> None:
    assert answers["two"] == "ok"
    spec = ModelSpec.model_validate(yaml.safe_load((files / "made" / "two" / "model.yaml").read_text()))
    assert [(t.name, t.dtype, t.shape) for t in (*spec.inputs, *spec.outputs)] == [
        ("ids", "int64", (-1, 5)),
        ("scale", "float32", (-1, 1)),
        ("output__0", "float32", (-1, 4)),
        ("output__1", "int64", (-1, 1)),
    ]
    assert "does not say the shape of input 'scale'; give --shape scale=1,..." in answers["no-shape"]
    assert "does not run with ids float32" in answers["no-type"]
    assert "--samples does" in answers["no-type"]
    assert "its forward returns Dict" in answers["named"]
