"""The Dice score."""

import numpy as np
from numpy.typing import NDArray


def dice_scores(
    predicted: NDArray[np.integer], real: NDArray[np.integer], classes: int
) -> NDArray[np.float64]:
    """Dice of the foreground classes 1 .. classes - 1 of one volume, float64 [classes - 1], each 0..1.

    predicted, real: class numbers, of one shape. Dice of a class is twice the voxels that both give it over
    the voxels that either gives it; a class in neither scores 1.

    The published metric (triton/metrics.py of NVIDIA's nnU-Net) asks whether class c is present, but then
    scores class c + 1, and takes the number of classes from the largest one that it meets. Here presence and
    score are of one class, and the number is the model's.
    """
    if predicted.shape != real.shape:
        raise ValueError(f"predicted {predicted.shape} and real {real.shape} classes differ in shape")
    scores = np.ones(classes - 1)
    for number in range(1, classes):
        have, want = predicted == number, real == number
        voxels = int(have.sum()) + int(want.sum())
        if voxels:
            scores[number - 1] = 2 * int((have & want).sum()) / voxels
    return scores
