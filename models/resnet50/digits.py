"""Handwritten digits of scikit-learn as RGB images, for the tiny variant and as the client's sample."""

import numpy as np
from numpy.typing import NDArray
from sklearn.datasets import load_digits

BRIGHTEST = 16  # the digits' own scale, 0..16
HELD_OUT = 400  # digits, the last ones: the tiny variant is not trained on them


def digit_images(height: int, width: int) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
    """All 1797 digits, uint8 [n, height, width, 3] in 0..255, and their labels 0..9, int64 [n].

    Interpolated linearly between the centres of the 8 x 8 pixels. Raises ValueError below 8 x 8.
    """
    if min(height, width) < 8:
        raise ValueError(f"height {height}, width {width}: expected 8 or more")
    digits = load_digits()
    rows, columns = _weights(height), _weights(width)
    grey = rows @ (digits.images * (255 / BRIGHTEST)) @ columns.T
    images = np.repeat(np.rint(grey).astype(np.uint8)[..., np.newaxis], 3, axis=-1)
    return images, digits.target.astype(np.int64)


def _weights(size: int) -> NDArray[np.float64]:
    """Weights of 8 source pixels in each of `size` target pixels, float [size, 8]."""
    centres = np.clip((np.arange(size) + 0.5) * 8 / size - 0.5, 0, 7)
    return np.maximum(0.0, 1.0 - np.abs(centres[:, np.newaxis] - np.arange(8)))
