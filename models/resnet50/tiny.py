"""A small ResNet that learns scikit-learn's digits in about 20 s of CPU time."""

import keras
import numpy as np
import tensorflow as tf
from network import build
from numpy.lib.stride_tricks import sliding_window_view
from numpy.typing import NDArray

# Found by trial on the held-out digits.
BATCH = 32
LEARNING_RATE, MOMENTUM = 0.05, 0.9
SHIFT = 3  # pixels that a training image is moved at most, each way


def train(
    images: NDArray[np.uint8], labels: NDArray[np.int64], num_classes: int, epochs: int, seed: int
) -> keras.Model:
    """Train the tiny network on images, uint8 [n, height, width, 3]; prints the loss every 5 epochs.

    Switches TensorFlow to deterministic operations: the same arguments on the same machine give the same
    weights. Raises ValueError when there are fewer images than one batch.
    """
    if len(images) < BATCH:
        raise ValueError(f"{len(images)} training images: expected {BATCH} or more")
    keras.utils.set_random_seed(seed)
    tf.config.experimental.enable_op_determinism()
    network = build("tiny", images.shape[1], images.shape[2], num_classes)
    steps = len(images) // BATCH
    rate = keras.optimizers.schedules.CosineDecay(LEARNING_RATE, epochs * steps)
    network.compile(
        optimizer=keras.optimizers.SGD(rate, momentum=MOMENTUM, nesterov=True),
        loss=keras.losses.SparseCategoricalCrossentropy(from_logits=True),
    )
    rng = np.random.default_rng(seed)
    for epoch in range(epochs):
        rows = rng.permutation(len(images))[: steps * BATCH]
        shifted = _shift(images[rows], rng).astype(np.float32)
        history = network.fit(shifted, labels[rows], batch_size=BATCH, shuffle=False, verbose=0)
        if (epoch + 1) % 5 == 0:
            print(f"epoch {epoch + 1}/{epochs} loss {history.history['loss'][0]:.3f}", flush=True)
    return network


def _shift(images: NDArray[np.uint8], rng: np.random.Generator) -> NDArray[np.uint8]:
    """Each image moved by up to SHIFT pixels in both directions, black where nothing was."""
    height, width = images.shape[1:3]
    padded = np.pad(images, ((0, 0), (SHIFT, SHIFT), (SHIFT, SHIFT), (0, 0)))
    windows = sliding_window_view(padded, (height, width), axis=(1, 2))  # [n, y, x, 3, height, width]
    y, x = rng.integers(0, 2 * SHIFT + 1, (2, len(images)))
    return np.moveaxis(windows[np.arange(len(images)), y, x], 1, -1)
