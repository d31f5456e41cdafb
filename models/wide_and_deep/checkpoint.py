"""Weights in the published format: tf.train.Checkpoint's files, with the names of the published training.

That training saves its optimizers and tf.keras' WideDeepModel of two Keras 2 functional models (NVIDIA
DeepLearningExamples, TensorFlow2/Recommendation/WideAndDeep, trainer/utils/trainer.py, trainer/model/). The
names were checked against a checkpoint that such objects wrote with tf_keras 2.21.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import keras
import numpy as np
import tensorflow as tf

WIDE, DEEP = "model/linear_model/layer_with_weights-0/", "model/dnn_model/layer_with_weights-"
TABLE = ".Sembedding_weights"  # TensorFlow writes the / of "ad_id/embedding_weights" as .S
VALUE = "/.ATTRIBUTES/VARIABLE_VALUE"
# Values that only training needs; with each weight, slots of the optimizers are kept, too.
TRAINING = (
    "deep_optimizer/",
    "wide_optimizer/",
    "current_step/",
    "save_counter/",
    "_CHECKPOINTABLE_OBJECT_GRAPH",
)
SLOT = "/.OPTIMIZER_SLOT/"
FILES = "the files 'checkpoint', 'ckpt-N.index' and 'ckpt-N.data-00000-of-00001'"


def published_names(model: keras.Model) -> dict[str, Any]:
    """Name in the checkpoint -> variable, for every variable of the network."""
    wide, deep = model.get_layer("wide"), model.get_layer("deep_input")
    names = {f"{WIDE}{column}{TABLE}{VALUE}": table for column, table in wide.tables.items()}
    names[f"{WIDE}numeric{TABLE}{VALUE}"] = wide.numeric
    names[f"{WIDE}bias{VALUE}"] = wide.bias
    names |= {f"{DEEP}0/{column}{TABLE}{VALUE}": table for column, table in deep.tables.items()}
    dense = [layer for layer in model.layers if isinstance(layer, keras.layers.Dense)]
    for number, layer in enumerate(dense, start=1):
        names[f"{DEEP}{number}/kernel{VALUE}"] = layer.kernel
        names[f"{DEEP}{number}/bias{VALUE}"] = layer.bias
    return names


def load(model: keras.Model, folder: str) -> None:
    """Set every variable from the newest checkpoint of a folder.

    Raises ValueError, naming the folder, when it holds no readable checkpoint, or when a weight is missing,
    unexpected or of another shape.
    """
    path = tf.train.latest_checkpoint(folder)
    if path is None:
        raise ValueError(f"{folder}: no TensorFlow checkpoint; expected a folder with {FILES}")
    names = published_names(model)
    try:
        reader = tf.train.load_checkpoint(path)
        problem = _differences(reader.get_variable_to_shape_map(), names)
        values = {} if problem else {name: reader.get_tensor(name) for name in names}
    except (tf.errors.OpError, RuntimeError, ValueError, IndexError) as error:  # TensorFlow raises all four
        raise ValueError(f"{path}: cannot be read; expected {FILES}, whole ({error})") from error
    if problem:
        raise ValueError(f"{path} does not fit the network; {problem}")
    for name, value in values.items():
        names[name].assign(value)


def save(model: keras.Model, folder: Path) -> None:
    """Write the network's variables as checkpoint 1 of a new folder."""
    folder.mkdir()
    names = published_names(model)
    # The kernel under tf.train.Checkpoint; that class itself would choose Keras 3's names.
    tf.raw_ops.SaveV2(
        prefix=str(folder / "ckpt-1"),
        tensor_names=list(names),
        shape_and_slices=[""] * len(names),
        tensors=[tf.convert_to_tensor(np.asarray(variable)) for variable in names.values()],
    )
    (folder / "checkpoint").write_text('model_checkpoint_path: "ckpt-1"\n', encoding="utf-8")


def _differences(found: dict[str, list[int]], names: dict[str, Any]) -> str:
    """Every difference between the checkpoint and the network, in words; empty when there is none."""
    weights = {n: tuple(s) for n, s in found.items() if SLOT not in n and not n.startswith(TRAINING)}
    shapes = [
        f"{name} has {weights[name]}, expected {tuple(variable.shape)}"
        for name, variable in names.items()
        if name in weights and weights[name] != tuple(variable.shape)
    ]
    differences = {
        "missing": sorted(set(names) - set(weights)),
        "unexpected": sorted(set(weights) - set(names)),
        "wrong shapes": shapes,
    }
    return "; ".join(f"{title}: {', '.join(items)}" for title, items in differences.items() if items)
