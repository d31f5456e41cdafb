"""Intensities and patches of MRI volumes, in NumPy alone."""

from collections.abc import Callable, Iterator
from itertools import product

import numpy as np
from numpy.typing import NDArray

Volume = NDArray[np.float32]

SIGMA = 0.125  # of the patch; the blend's Gaussian (MONAI, sliding_window_inference, sigma_scale)
LEAST_WEIGHT = 1e-3  # so that a voxel that only a corner of one patch covers still counts


def normalize(image: Volume) -> Volume:
    """Bring each channel of [channels, depth, height, width] to mean 0 and deviation 1 where it is not zero.

    Zero stands for "outside the head" and stays zero. The published preprocessing does this to MRI: MONAI's
    NormalizeIntensity, nonzero and channel-wise, in preprocessor.py of NVIDIA's nnU-Net.
    """
    result = np.zeros(image.shape, dtype=np.float32)
    for channel, values in zip(result, image, strict=True):
        inside = values != 0
        if inside.any():
            deviation = float(values[inside].std())
            channel[inside] = (values[inside] - values[inside].mean()) / (deviation or 1.0)
    return result


def segment(
    volume: Volume, size: int, most: int, predict: Callable[[Volume], NDArray[np.generic]]
) -> NDArray[np.uint8]:
    """Class of each voxel of a volume of any size, from patches that overlap by half.

    volume: [channels, depth, height, width], normalised. `predict` takes at most `most` patches, [b,
    channels, size, size, size], and returns their logits, [b, classes, size, size, size]; those of
    overlapping patches are averaged, weighted with a Gaussian around each patch's centre, as in the published
    inference. Returns uint8 [depth, height, width]. A smaller volume is padded with zeros first.
    """
    missing = [max(0, size - extent) for extent in volume.shape[1:]]
    padded = np.pad(volume, [(0, 0), *((space // 2, space - space // 2) for space in missing)])
    corners = list(_corners(padded.shape[1:], size))
    weight = _weight(size)
    logits: Volume | None = None
    for first in range(0, len(corners), most):
        places = [tuple(slice(at, at + size) for at in corner) for corner in corners[first : first + most]]
        answers = predict(np.stack([padded[:, *place] for place in places]))
        if logits is None:
            logits = np.zeros((answers.shape[1], *padded.shape[1:]), dtype=np.float32)
        for place, answer in zip(places, answers, strict=True):
            # The sum is enough: a voxel's total weight is the same for all of its classes.
            logits[:, *place] += weight * answer.astype(np.float32)
    assert logits is not None
    inner = tuple(
        slice(space // 2, space // 2 + extent)
        for space, extent in zip(missing, volume.shape[1:], strict=True)
    )
    classes: NDArray[np.uint8] = logits[:, *inner].argmax(axis=0).astype(np.uint8)
    return classes


def _corners(extents: tuple[int, ...], size: int) -> Iterator[tuple[int, ...]]:
    """First voxel of each patch; the last patch of an axis ends with the axis."""
    step = max(1, size // 2)
    return product(*([*range(0, extent - size, step), extent - size] for extent in extents))


def _weight(size: int) -> Volume:
    """float32 [size, size, size], highest in the middle."""
    distance = (np.arange(size) - (size - 1) / 2) / (SIGMA * size)
    line = np.exp(-0.5 * distance**2)
    cube = line[:, None, None] * line[:, None] * line
    return np.maximum(cube, LEAST_WEIGHT).astype(np.float32)
