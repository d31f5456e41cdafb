"""A small Wide & Deep that learns generated clicks in seconds on a CPU."""

from __future__ import annotations

import keras
import polars as pl
import tensorflow as tf
from wd_columns import LABEL, TINY
from wd_data import inputs
from wd_network import build

# Found by trial on the held-out displays.
BATCH, LEARNING_RATE = 256, 0.004


def train(
    frame: pl.DataFrame, hidden_units: int, hidden_layers: int, combiner: str, epochs: int, seed: int
) -> keras.Model:
    """Train on all rows of the frame, `epochs` times; prints the loss of each epoch.

    Switches TensorFlow to deterministic kernels: the same arguments give the same weights on one machine.
    One Adam trains both parts; the published training has FTRL for the wide one and RMSprop for the deep.
    """
    keras.utils.set_random_seed(seed)
    tf.config.experimental.enable_op_determinism()
    model = build(TINY, hidden_units, hidden_layers, combiner)
    steps = epochs * -(-len(frame) // BATCH)
    rate = keras.optimizers.schedules.CosineDecay(LEARNING_RATE, steps)
    model.compile(optimizer=keras.optimizers.Adam(rate), loss="binary_crossentropy")
    labels = frame[LABEL].to_numpy().reshape(-1, 1)
    model.fit(inputs(frame, TINY), labels, batch_size=BATCH, epochs=epochs, verbose=2)
    return model
