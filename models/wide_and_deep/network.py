"""The Wide & Deep network (Cheng et al. 2016) in Keras, laid out so that published weights fit."""

from __future__ import annotations

from typing import Any

import keras
import tensorflow as tf
from columns import HOTNESS, MULTI_HOT, NUMERIC, OUTPUT, Tables

# Small and nowhere zero: with random weights too, every table has an effect that a wrong lookup would change.
INITIAL = "random_normal"  # deviation 0.05


class Wide(keras.layers.Layer):
    """Linear part: one weight for each id and each number; the weights of a list's ids are added up."""

    def __init__(self, tables: Tables, **settings: Any) -> None:
        super().__init__(**settings)
        self.shapes = {column: (rows, 1) for column, (rows, _) in tables.items()}

    def build(self, _: Any) -> None:
        self.tables = _add_tables(self, self.shapes)
        self.numeric = self.add_weight(name="numeric", shape=(len(NUMERIC), 1), initializer=INITIAL)
        self.bias = self.add_weight(name="bias", shape=(1,), initializer="zeros")

    def call(self, x: dict[str, Any]) -> Any:
        """Logit [b, 1]."""
        numbers = tf.concat([x[column] for column in sorted(NUMERIC)], axis=1)
        parts = [_look_up(table, x[column], "sum") for column, table in self.tables.items()]
        return tf.add_n(parts) + numbers @ self.numeric + self.bias


class DeepInput(keras.layers.Layer):
    """The input of the hidden layers: all embeddings and numbers, joined in the published order."""

    def __init__(self, tables: Tables, combiner: str, **settings: Any) -> None:
        super().__init__(**settings)
        self.shapes, self.combiner = dict(tables), combiner

    def build(self, _: Any) -> None:
        self.tables = _add_tables(self, self.shapes)

    def call(self, x: dict[str, Any]) -> Any:
        """[b, 1248] with the published tables."""
        parts = {column: x[column] for column in NUMERIC}
        for column, table in self.tables.items():
            # TensorFlow names an embedding's feature column so, and the published layer sorts by that name.
            parts[f"{column}_embedding"] = _look_up(table, x[column], self.combiner)
        return tf.concat([parts[name] for name in sorted(parts)], axis=1)


def build(tables: Tables, hidden_units: int, hidden_layers: int, combiner: str) -> keras.Model:
    """The network, a dict of columns -> click probability, with weights from Keras' global random generator.

    Dropout (0.1 in the published training) is left out: it does nothing when served. Raises ValueError on
    a combiner other than `sum` and `mean`.
    """
    if combiner not in ("sum", "mean"):
        raise ValueError(f"combiner {combiner!r}: expected sum or mean")
    x = {column: keras.Input((1,), name=column, dtype="float32") for column in NUMERIC}
    for column in tables:
        width = HOTNESS if column in MULTI_HOT else 1
        x[column] = keras.Input((width,), name=column, dtype="int32")
    deep = DeepInput(tables, combiner, name="deep_input")(x)
    for layer in range(hidden_layers):
        deep = keras.layers.Dense(hidden_units, activation="relu", name=f"hidden_{layer}")(deep)
    deep = keras.layers.Dense(1, name="deep")(deep)
    logit = keras.layers.Add(name="logit")([Wide(tables, name="wide")(x), deep])
    return keras.Model(x, keras.layers.Activation("sigmoid", name=OUTPUT)(logit))


def _add_tables(layer: keras.layers.Layer, shapes: Tables) -> dict[str, Any]:
    return {
        column: layer.add_weight(name=column, shape=shape, initializer=INITIAL)
        for column, shape in shapes.items()
    }


def _look_up(table: Any, ids: Any, combiner: str) -> Any:
    """Rows of a table for ids [b, k], summed or averaged without the padding: [b, width]."""
    if ids.shape[1] == 1:
        return tf.gather(table, ids[:, 0])
    known = tf.expand_dims(tf.cast(ids >= 0, table.dtype), -1)
    # On a GPU a negative id would read zeros, on a CPU it is an error: padding reads row 0, and is masked.
    total = tf.reduce_sum(tf.gather(table, tf.maximum(ids, 0)) * known, axis=1)
    return total if combiner == "sum" else total / tf.maximum(tf.reduce_sum(known, axis=1), 1)
