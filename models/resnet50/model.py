"""ResNet-50 v1.5 for image classification, from a published or a local checkpoint, or with random weights."""

from collections.abc import Callable

import keras
import tensorflow as tf
from checkpoint import restore
from network import build

Tensors = dict[str, tf.Tensor]
SEED = 0  # of the random weights


def get_model(
    architecture: str, height: int, width: int, num_classes: int, checkpoint: str | None = None
) -> tuple[keras.Model, Callable[[Tensors], Tensors]]:
    """The Keras network, and the function that runs it in inference mode on a dict of tensors.

    That takes `input`, RGB images, float [b, height, width, 3] in 0..255, and returns `classes`, the index of
    the largest logit, int64 [b, 1], and `probabilities`, float [b, num_classes]. `checkpoint` is the .index
    file of a TensorFlow 1 checkpoint; without it the weights are seeded random ones. Raises ValueError when
    the checkpoint does not fit.
    """
    keras.utils.set_random_seed(SEED)
    network = build(architecture, height, width, num_classes)
    if checkpoint is not None:
        restore(network, checkpoint)

    def call(x: Tensors) -> Tensors:
        logits = network(x["input"], training=False)
        classes = tf.expand_dims(tf.argmax(logits, axis=1), axis=1)
        return {"classes": classes, "probabilities": tf.nn.softmax(logits)}

    return network, call
