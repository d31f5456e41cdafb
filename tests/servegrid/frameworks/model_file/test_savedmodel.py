"""SavedModels are read and exported; spoilt ones have their error."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

SAVEDMODEL = """
import shutil
import tensorflow as tf
class Module(tf.Module):
    def __init__(self):
        self.w = tf.Variable(tf.ones([6, 3]))
    @tf.function
    def serve(self, x):
        return {"y": tf.nn.softmax(x @ self.w)}
module = Module()
call = module.serve.get_concrete_function(tf.TensorSpec([None, 6], tf.float32, name="x"))
tf.saved_model.save(module, f"{folder}/good", signatures={"serving_default": call})
tf.saved_model.save(module, f"{folder}/other", signatures={"other": call})
class Several(tf.Module):
    @tf.function(input_signature=[tf.TensorSpec([None, 6], tf.float32, name="x")])
    def double(self, x):
        return {"y": 2 * x}
    @tf.function(input_signature=[tf.TensorSpec([None, 6], tf.float32, name="x")])
    def triple(self, x):
        return {"z": 3 * x}
several = Several()
tf.saved_model.save(several, f"{folder}/several", signatures={"two": several.double, "three": several.triple})
tf.saved_model.save(several, f"{folder}/none")
def spoilt(name, change):
    shutil.copytree(f"{folder}/good", f"{folder}/{name}")
    change(Path(folder) / name)
def cut(path):
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])
spoilt("no-variables", lambda p: shutil.rmtree(p / "variables"))
spoilt("no-index", lambda p: (p / "variables" / "variables.index").unlink())
spoilt("no-values", lambda p: (p / "variables" / "variables.data-00000-of-00001").unlink())
spoilt("cut-values", lambda p: cut(p / "variables" / "variables.data-00000-of-00001"))
spoilt("cut-graph", lambda p: cut(p / "saved_model.pb"))
spoilt("empty-graph", lambda p: (p / "saved_model.pb").write_bytes(b""))
spoilt("pickle-for-graph", lambda p: shutil.copy(f"{folder}/pickle", p / "saved_model.pb"))
names = ("good", "other", "garbage", "no-variables", "no-index", "no-values", "cut-values", "cut-graph")
names += ("empty-graph", "pickle-for-graph", "several", "none")
cases = [{"id": name, "file": name} for name in names]
for name in ("three", "tree"):
    cases.append({"id": name, "file": "several", "parameters": {"signature": name}})
"""
EXPORT = """
import numpy as np
from servegrid.frameworks.framework_steps import export, reference
from servegrid.frameworks.plugin_steps import prepare, profile_data
from servegrid.frameworks.steps import parse_fields
out = Path(folder) / "out"
tensor = lambda name, last: {"name": name, "dtype": "float32", "shape": [-1, last]}
interface = {"inputs": [tensor("x", 6)], "outputs": [tensor("y", 3)]}
network = {"framework": "savedmodel", "interface": interface}
def step(function, name, inputs, plugin=Path(folder) / "made" / "good", **fields):
    (out / name).mkdir(parents=True)
    fields = parse_fields(function.__name__, {"parameters": {}, **fields})
    job = Job(step=function.__name__, fields=fields, inputs=inputs, plugin=plugin, output=out / name)
    function(job)
    return out / name
prepared = {"prepared": step(prepare, "prepared", {}, variant="file")}
step(export, "tf-savedmodel", prepared, format="tf-savedmodel", opset=17, **network)
step(export, "onnx", prepared, format="onnx", opset=17, **network)
samples = {"samples": step(profile_data, "samples", prepared, samples=64)}
step(reference, "reference", prepared | samples, batch_size=8, **network)
three = {"plugin": Path(folder) / "made" / "three", "parameters": {"signature": "three"}}
interface = {"inputs": [tensor("x", 6)], "outputs": [tensor("z", 6)]}
network = {"framework": "savedmodel", "interface": interface, "opset": 17} | three
prepared = {"prepared": step(prepare, "prepared-three", {}, variant="file", **three)}
for format_ in ("tf-savedmodel", "onnx"):
    step(export, f"{format_}-three", prepared, format=format_, **network)
served = tf.saved_model.load(str(out / "tf-savedmodel-three" / "model.savedmodel"))
answer = served.signatures["serving_default"](x=tf.ones([2, 6]))
np.savez(out / "three.npz", **{name: value.numpy() for name, value in answer.items()})
"""


@pytest.fixture(scope="module")
def answers(files: Path, ask: Callable[..., Any]) -> dict[str, str]:
    """The message of one process for every SavedModel; it exports the good one, too."""
    (files / "garbage").mkdir()
    (files / "garbage" / "saved_model.pb").write_bytes(b"\x93\x00garbage")
    return ask("savedmodel", SAVEDMODEL, EXPORT)


SPOILT = (
    *("garbage", "no-variables", "no-index", "no-values", "cut-values", "cut-graph", "empty-graph"),
    "pickle-for-graph",
)


@pytest.mark.parametrize("name", SPOILT)
@pytest.mark.fault(
    "Inputs: SavedModels", "one line that says what is wrong with the file; nothing of it is kept or run"
)
def test_spoilt_savedmodel(name: str, answers: dict[str, str], happened: Any) -> None:
    message = answers[name]
    assert message.startswith("not a SavedModel that TensorFlow can load: ")
    assert "\n" not in message
    assert not Path("ran").exists()
    happened(message)


def test_savedmodels(files: Path, answers: dict[str, str]) -> None:
    assert answers["good"] == "ok"
    assert answers["other"] == answers["three"] == "ok"
    assert "unknown signature 'tree': did you mean 'three'" in answers["tree"]
    assert re.search("'serving_default'.* three, two; give --signature NAME", answers["several"])
    assert "it has no signature" in answers["none"]
    with np.load(files / "out" / "three.npz") as file:
        np.testing.assert_array_equal(file["z"], np.full((2, 6), 3.0))
    assert [v.name for v in onnx.load(str(files / "out" / "onnx-three" / "model.onnx")).graph.output] == ["z"]
    assert (files / "out" / "tf-savedmodel" / "model.savedmodel" / "saved_model.pb").is_file()
    graph = onnx.load(str(files / "out" / "onnx" / "model.onnx")).graph
    assert ([v.name for v in graph.input], [v.name for v in graph.output]) == (["x"], ["y"])
    with np.load(files / "out" / "reference" / "outputs.npz") as file:
        np.testing.assert_allclose(file["y"], np.full((64, 3), 1 / 3), rtol=1e-5)
    counted = json.loads((files / "out" / "reference" / "count.json").read_text())
    assert (counted["weights"], counted["sample_bytes"]) == (18, 4 * 6 + 4 * 3)
    assert 2 * 18 <= counted["flops"] <= 2 * 18 + 5 * 3  # the product; TensorFlow counts a softmax, too
