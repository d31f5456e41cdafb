"""ResNet-50 v1.5 as a Keras network whose variables have the names of the published TensorFlow 1 code.

Structure and constants are those of NVIDIA DeepLearningExamples, TensorFlow/Classification/ConvNets:
model/resnet.py, model/blocks/ and utils/data_utils.py.
"""

from dataclasses import dataclass

import keras
import numpy as np

SCOPE = "resnet50"  # of the published variable names
EXPANSION = 4  # a bottleneck's output channels over its width
EPSILON, MOMENTUM = 1e-5, 0.9  # of every batch normalisation
# Residual branches start small, so that activations do not double with every block of an untrained network;
# not at 0, so that random weights still exercise them.
BRANCH_GAMMA = 0.5
# Mean and standard deviation of R, G and B, each 0..255; applied inside the network, as published.
MEANS = np.array([123.68, 116.28, 103.53], dtype=np.float32)
DEVIATIONS = np.array([58.395, 57.120, 57.385], dtype=np.float32)


@dataclass(frozen=True)
class Architecture:
    """Of each group of bottleneck blocks: how many there are and how wide. `stem`: channels before them."""

    stem: int
    layers: tuple[int, ...]
    widths: tuple[int, ...]


ARCHITECTURES = {
    "resnet50": Architecture(stem=64, layers=(3, 4, 6, 3), widths=(64, 128, 256, 512)),
    "tiny": Architecture(stem=16, layers=(1, 1, 1), widths=(16, 32, 64)),
}


def build(architecture: str, height: int, width: int, num_classes: int) -> keras.Model:
    """Network from RGB images, float [b, height, width, 3] in 0..255, to logits, float [b, num_classes].

    Its weights are drawn from Keras' global seed. Raises ValueError on an unknown architecture.
    """
    if architecture not in ARCHITECTURES:
        raise ValueError(f"unknown architecture {architecture!r}: expected {' or '.join(ARCHITECTURES)}")
    chosen = ARCHITECTURES[architecture]
    image = keras.Input((height, width, 3), name="input")
    net = _convolution((image - MEANS) / DEVIATIONS, chosen.stem, 7, 2, "conv2d")
    net = keras.layers.ReLU()(net)
    net = keras.layers.MaxPooling2D(3, strides=2, padding="same")(net)
    for group, (count, channels) in enumerate(zip(chosen.layers, chosen.widths, strict=True)):
        for index in range(count):
            stride = 2 if index == 0 and group > 0 else 1
            net = _bottleneck(net, channels, stride, f"btlnck_block_{group}_{index}")
    net = keras.layers.GlobalAveragePooling2D()(net)
    dense = keras.layers.Dense(num_classes, kernel_initializer=_he(), name="output.dense")
    return keras.Model(image, dense(net), name=SCOPE)


def published_names(network: keras.Model) -> dict[str, keras.Variable]:
    """The network's variables by their names in the published checkpoint.

    A layer is named by its published scope, with dots for slashes: Keras allows no slash.
    """
    return {
        f"{SCOPE}/{layer.name.replace('.', '/')}/{variable.name}": variable
        for layer in network.layers
        for variable in layer.weights
    }


def _bottleneck(net: keras.KerasTensor, channels: int, stride: int, scope: str) -> keras.KerasTensor:
    """Convolutions 1x1, 3x3, 1x1 with a shortcut. Version 1.5: the stride is that of the 3x3 convolution."""
    shortcut, depth = net, channels * EXPANSION
    if net.shape[-1] != depth:
        shortcut = _convolution(net, depth, 1, stride, f"{scope}.shortcut.conv2d")
    net = keras.layers.ReLU()(_convolution(net, channels, 1, 1, f"{scope}.bottleneck_1"))
    net = keras.layers.ReLU()(_convolution(net, channels, 3, stride, f"{scope}.bottleneck_2"))
    net = _convolution(net, depth, 1, 1, f"{scope}.bottleneck_3", BRANCH_GAMMA)
    return keras.layers.ReLU()(keras.layers.Add()([shortcut, net]))


def _convolution(
    net: keras.KerasTensor, channels: int, kernel: int, stride: int, scope: str, gamma: float = 1.0
) -> keras.KerasTensor:
    """A convolution without bias, then batch normalisation."""
    convolution = keras.layers.Conv2D(
        channels,
        kernel,
        strides=stride,
        padding="same",
        use_bias=False,
        kernel_initializer=_he(),
        name=f"{scope}.conv2d",
    )
    normalization = keras.layers.BatchNormalization(
        momentum=MOMENTUM,
        epsilon=EPSILON,
        gamma_initializer=keras.initializers.Constant(gamma),
        name=f"{scope}.BatchNorm",
    )
    return normalization(convolution(net))


def _he() -> keras.Initializer:
    return keras.initializers.VarianceScaling(2.0, mode="fan_out", distribution="truncated_normal")
