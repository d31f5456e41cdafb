"""A small Wide & Deep that learns generated clicks in seconds on a CPU."""

from __future__ import annotations

import keras
import numpy as np
import polars as pl
import tensorflow as tf
from columns import LABEL, TINY
from network import build
from parquet import inputs

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
    x = {column: tf.constant(values) for column, values in inputs(frame, TINY).items()}
    clicked = tf.constant(frame[LABEL].to_numpy().reshape(-1, 1), tf.float32)
    steps = len(frame) // BATCH
    rate = keras.optimizers.schedules.CosineDecay(LEARNING_RATE, epochs * steps)
    optimizer = keras.optimizers.Adam(rate)
    optimizer.build(model.trainable_variables)

    @tf.function
    def step(rows: tf.Tensor) -> tf.Tensor:
        with tf.GradientTape() as tape:
            predicted = model(
                {column: tf.gather(values, rows) for column, values in x.items()}, training=True
            )
            loss = tf.reduce_mean(keras.losses.binary_crossentropy(tf.gather(clicked, rows), predicted))
        gradients = tape.gradient(loss, model.trainable_variables)
        optimizer.apply(gradients, model.trainable_variables)
        return loss

    rng = np.random.default_rng(seed)
    for epoch in range(epochs):
        order = rng.permutation(steps * BATCH).reshape(steps, BATCH)
        losses = [float(step(tf.constant(rows))) for rows in order]
        print(f"epoch {epoch + 1}/{epochs} loss {np.mean(losses):.3f}", flush=True)
    return model
