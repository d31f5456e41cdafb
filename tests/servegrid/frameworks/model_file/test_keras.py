"""Keras files are read and exported; code that one holds is not run."""

from __future__ import annotations

import re
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
import keras
import numpy as np
from keras import layers
keras.utils.set_random_seed(0)
x = keras.Input((6,), name="x")
keras.Model(x, layers.Dense(3, activation="softmax", name="probs")(x)).save(f"{folder}/one.keras")
a, b = keras.Input((None, 8), name="seq"), keras.Input((2,), name="extra", dtype="int32")
pooled = layers.GlobalAveragePooling1D()(layers.Dense(4)(a))
h = layers.Concatenate()([pooled, layers.Flatten()(layers.Embedding(9, 3)(b))])
heads = {"logits": layers.Dense(2)(h), "a_score": layers.Dense(1)(h)}
keras.Model({"seq": a, "extra": b}, heads).save(f"{folder}/dicts.keras")
parts = [layers.Conv2D(4, 3), layers.BatchNormalization(), layers.Dropout(0.5), layers.Flatten()]
sequential = keras.Sequential([keras.Input((9, 9, 1)), *parts, layers.Dense(3, name="head")])
sequential.save(f"{folder}/sequential.keras")
keras.Sequential([layers.Dense(3)]).save(f"{folder}/unbuilt.keras")
keras.Model(x, layers.Lambda(lambda t: t * 2)(x)).save(f"{folder}/lambda.keras")
class Own(layers.Layer):
    def call(self, t):
        return t * 2
keras.Model(x, Own()(x)).save(f"{folder}/own.keras")
del Own
whole = (Path(folder) / "one.keras").read_bytes()
(Path(folder) / "truncated.keras").write_bytes(whole[: len(whole) // 2])
names = ("one", "sequential", "unbuilt", "lambda", "own", "truncated")
cases = [{"id": name, "file": f"{name}.keras"} for name in names]
cases += [{"id": "dicts", "file": "dicts.keras", "shapes": {"seq": [1, 5, 8]}}]
"""
EXPORT = """
import yaml
import tensorflow as tf
from servegrid.domain.spec import ModelSpec
from servegrid.frameworks.framework_steps import export
from servegrid.frameworks.plugin_steps import prepare
from servegrid.frameworks.steps import parse_fields
def step(function, name, plugin, inputs, **fields):
    output = Path(folder) / "out" / plugin.name / name
    output.mkdir(parents=True)
    fields = parse_fields(function.__name__, {"parameters": {}, **fields})
    function(Job(step=function.__name__, fields=fields, inputs=inputs, plugin=plugin, output=output))
    return output
for name in ("one", "sequential", "dicts"):
    plugin = Path(folder) / "made" / name
    spec = ModelSpec.model_validate(yaml.safe_load((plugin / "model.yaml").read_text()))
    prepared = {"prepared": step(prepare, "prepared", plugin, {}, variant="file")}
    network = {"framework": "keras", "interface": spec.interface({}).model_dump(), "opset": spec.opset}
    made = {f: step(export, f, plugin, prepared, format=f, **network) for f in ("tf-savedmodel", "onnx")}
    with np.load(plugin / "data" / "samples.npz") as file:
        x = {t.name: file[t.name][:7] for t in spec.inputs}
    model = keras.models.load_model(f"{folder}/{name}.keras")
    answer = model(x if len(x) > 1 else next(iter(x.values())), training=False)
    wanted = answer if isinstance(answer, dict) else {spec.outputs[0].name: answer}
    served = tf.saved_model.load(str(made["tf-savedmodel"] / "model.savedmodel"))
    found = served.signatures["serving_default"](**{k: tf.constant(v) for k, v in x.items()})
    np.savez(
        Path(folder) / f"{name}.npz",
        **{f"x/{k}": v for k, v in x.items()},
        **{f"wanted/{k}": np.asarray(v) for k, v in wanted.items()},
        **{f"served/{k}": v.numpy() for k, v in found.items()},
    )
"""


@pytest.fixture(scope="module")
def answers(files: Path, ask: Callable[..., Any]) -> dict[str, str]:
    """The message of one process for every file; it exports the right ones, too."""
    return ask("keras", FILES, EXPORT)


@pytest.mark.parametrize("name", ["one", "sequential", "dicts"])
def test_every_export_answers_as_the_model(name: str, files: Path, answers: dict[str, str]) -> None:
    import onnxruntime

    assert answers[name] == "ok"
    data = yaml.safe_load((files / "made" / name / "model.yaml").read_text())
    spec = ModelSpec.model_validate(data, context=RULES)
    names = [tensor.name for tensor in spec.outputs]
    graph = str(files / "out" / name / "onnx" / "model.onnx")
    assert [v.name for v in onnx.load(graph).graph.output] == names
    assert {name: entry.precisions for name, entry in spec.formats.items()} == {
        "tf-savedmodel": ("fp32",), "onnx": ("fp32", "fp16"), "tf-trt": ("fp32", "fp16"),
    }  # fmt: skip
    with np.load(files / f"{name}.npz") as file:
        x = {tensor.name: file[f"x/{tensor.name}"] for tensor in spec.inputs}
        found = dict(zip(names, onnxruntime.InferenceSession(graph).run(names, x), strict=True))
        for output in names:
            np.testing.assert_allclose(found[output], file[f"wanted/{output}"], atol=1e-4)
            np.testing.assert_allclose(file[f"served/{output}"], file[f"wanted/{output}"], atol=1e-4)


WRONG = {
    "unbuilt": "it does not say its inputs: .*--savedmodel",
    "lambda": "its own code, which is not run: .*--savedmodel",
    "own": "its own code, which is not run: .*--savedmodel",
    "truncated": "not a model that Keras can load",
}


@pytest.mark.parametrize("name", WRONG)
@pytest.mark.fault(
    "Inputs: Keras files", "one line that says what is wrong with the file; nothing of it is kept or run"
)
def test_wrong_keras_file(name: str, answers: dict[str, str], happened: Any) -> None:
    assert re.search(WRONG[name], answers[name]) and "\n" not in answers[name], answers[name]
    happened(answers[name])
