"""Files of torch.export are read and exported; what is none is not run."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
import yaml

from servegrid.domain.spec import ModelSpec
from servegrid.plan.spec_rules import RULES

FILES = """
import pickle, zipfile
import torch
from torch import nn
torch.manual_seed(0)
class Text(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed, self.place = nn.Embedding(2, 16), nn.Parameter(torch.randn(32, 16))
        self.layer, self.head = nn.TransformerEncoderLayer(16, 2, 32, batch_first=True), nn.Linear(16, 3)
    def forward(self, ids, mask):
        h = self.embed(ids) * mask[..., None] + self.place[: ids.shape[1]]
        h = self.layer(h)
        return {"logits": self.head(h.mean(1)), "states": h.reshape(ids.shape[0], -1, 8)}
class Image(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv, self.norm, self.head = nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.Linear(8, 4)
    def forward(self, x):
        h = torch.relu(self.norm(self.conv(x))).mean((2, 3)).view(x.shape[0], -1)
        return self.head(h), h.argmax(1, keepdim=True)
free = torch.export.Dim.DYNAMIC
def save(name, module, args, kwargs=None, axes=None):
    program = torch.export.export(module.eval(), args, kwargs, dynamic_shapes=axes)
    torch.export.save(program, f"{folder}/{name}.pt2")
ids, image = torch.ones(2, 5, dtype=torch.int64), torch.ones(2, 3, 9, 9)
save("text", Text(), (ids, torch.ones(2, 5)), axes=({0: free, 1: free},) * 2)
save("image", Image(), (image,), axes=({0: free},))
save("fixed", Image(), (image,))
save("keyword", Text(), (ids,), {"mask": torch.ones(2, 5)})
class Nested(nn.Module):
    def forward(self, x):
        return {"a": (x, x + 1)}
save("nested", Nested(), (image,))
class Runs:
    def __reduce__(self):
        import os
        return (os.system, ("touch ran",))
def rewrite(name, part, content):
    with zipfile.ZipFile(f"{folder}/image.pt2") as old, zipfile.ZipFile(f"{folder}/{name}.pt2", "w") as new:
        for entry in old.namelist():
            new.writestr(entry, content if entry.endswith(part) else old.read(entry))
torch.save(Runs(), f"{folder}/runs.pt")
rewrite("hostile", "sample_inputs/model.pt", (Path(folder) / "runs.pt").read_bytes())
rewrite("no-graph", "models/model.json", b"{}")
whole = (Path(folder) / "image.pt2").read_bytes()
(Path(folder) / "truncated.pt2").write_bytes(whole[: len(whole) // 2])
shapes = {"ids": [1, 5], "mask": [1, 5]}
cases = [{"id": "text", "file": "text.pt2", "shapes": shapes}] + [
    {"id": name, "file": f"{name}.pt2"}
    for name in ("image", "fixed", "keyword", "nested", "hostile", "no-graph", "truncated")
]
"""
EXPORT = """
import numpy as np
from servegrid.frameworks.framework_steps import export
from servegrid.frameworks.plugin_steps import prepare
from servegrid.frameworks.steps import parse_fields
import yaml
from servegrid.domain.spec import ModelSpec
def step(function, name, plugin, inputs, **fields):
    output = Path(folder) / "out" / plugin.name / name
    output.mkdir(parents=True)
    fields = parse_fields(function.__name__, {"parameters": {}, **fields})
    function(Job(step=function.__name__, fields=fields, inputs=inputs, plugin=plugin, output=output))
    return output
for name in ("text", "image", "fixed"):
    plugin = Path(folder) / "made" / name
    spec = ModelSpec.model_validate(yaml.safe_load((plugin / "model.yaml").read_text()))
    prepared = {"prepared": step(prepare, "prepared", plugin, {}, variant="file")}
    network = {"framework": "torch_export", "interface": spec.interface({}).model_dump(), "opset": spec.opset}
    formats = ("torch-export", "onnx", "ts-trace")
    made = {f: step(export, f, plugin, prepared, format=f, **network) for f in formats}
    with np.load(plugin / "data" / "samples.npz") as file:
        x = [torch.from_numpy(file[t.name][: 2 if name == "fixed" else 7]) for t in spec.inputs]
    wanted = torch.utils._pytree.tree_leaves(torch.export.load(f"{folder}/{name}.pt2").module()(*x))
    found = torch.jit.load(str(made["ts-trace"] / "model.pt"))(*x)
    np.savez(
        Path(folder) / f"{name}.npz",
        **{f"x{i}": t.numpy() for i, t in enumerate(x)},
        **{f"wanted{i}": t.detach().numpy() for i, t in enumerate(wanted)},
        **{f"traced{i}": t.detach().numpy() for i, t in enumerate(found)},
    )
"""


@pytest.fixture(scope="module")
def answers(files: Path, ask: Callable[..., Any]) -> dict[str, str]:
    """The message of one process for every file; it exports the right ones, too."""
    return ask("torch_export", FILES, EXPORT)


def spec_of(files: Path, name: str) -> ModelSpec:
    data = yaml.safe_load((files / "made" / name / "model.yaml").read_text())
    return ModelSpec.model_validate(data, context=RULES)


def test_programs_are_model_folders(files: Path, answers: dict[str, str]) -> None:
    assert {name: answers[name] for name in ("text", "image", "fixed")} == dict.fromkeys(
        ("text", "image", "fixed"), "ok"
    )
    text, image, fixed = (spec_of(files, name) for name in ("text", "image", "fixed"))
    assert [(t.name, t.dtype, t.shape) for t in text.inputs] == [
        ("ids", "int64", (-1, 5)), ("mask", "float32", (-1, 5)),
    ]  # fmt: skip
    assert [(t.name, t.shape) for t in text.outputs] == [("logits", (-1, 3)), ("states", (-1, 10, 8))]
    assert [(t.name, t.dtype) for t in image.outputs] == [("output__0", "float32"), ("output__1", "int64")]
    assert (image.fixed_batch, fixed.fixed_batch) == (None, 2)
    for spec in (text, image, fixed):
        assert {name: entry.precisions for name, entry in spec.formats.items()} == {
            "aoti": ("fp32",), "onnx": ("fp32", "fp16"), "ts-trace": ("fp32", "fp16"),
        }  # fmt: skip


@pytest.mark.parametrize("name", ["text", "image", "fixed"])
def test_every_export_answers_as_the_program(name: str, files: Path, answers: dict[str, str]) -> None:
    """At another batch size than that of the program's example."""
    import onnxruntime

    assert (files / "out" / name / "torch-export" / "model.pt2").is_file()
    graph = str(files / "out" / name / "onnx" / "model.onnx")
    spec = spec_of(files, name)
    assert [v.name for v in onnx.load(graph).graph.output] == [t.name for t in spec.outputs]
    with np.load(files / f"{name}.npz") as file:
        x = {tensor.name: file[f"x{i}"] for i, tensor in enumerate(spec.inputs)}
        found = onnxruntime.InferenceSession(graph).run(None, x)
        for i, array in enumerate(found):
            np.testing.assert_allclose(array, file[f"wanted{i}"], atol=1e-4)
            np.testing.assert_allclose(file[f"traced{i}"], file[f"wanted{i}"], atol=1e-4)


WRONG = {
    "keyword": "it takes mask by keyword: .*args",
    "nested": "its outputs are nested",
    "no-graph": "not a file of torch.export.save",
    "truncated": "not a file of torch.export.save",
}


@pytest.mark.parametrize("name", WRONG)
@pytest.mark.fault(
    "Inputs: files of torch.export", "one line that says what is wrong with the file; nothing of it is kept"
)
def test_wrong_program(name: str, answers: dict[str, str], happened: Any) -> None:
    import re

    assert re.search(WRONG[name], answers[name]) and "\n" not in answers[name], answers[name]
    happened(answers[name])


def test_a_pickle_in_a_program_is_not_unpickled(answers: dict[str, str]) -> None:
    assert answers["hostile"] == "ok" or answers["hostile"].startswith("not a file of torch.export.save")
    assert not Path("ran").exists()
