"""Batches of labelled images, or of random ones."""

from collections.abc import Callable, Iterator
from itertools import count

import numpy as np
from numpy.typing import NDArray

Arrays = dict[str, NDArray[np.generic]]
Batch = tuple[NDArray[np.int64], Arrays, Arrays]

PATCHES = 8  # of one colour along each side of a random image: noise of single pixels all looks alike


def get_dataloader_fn(
    height: int, width: int, batch_size: int, images_file: str | None = None, labels_file: str | None = None
) -> Callable[[], Iterator[Batch]]:
    """Return a function whose iterator yields (ids, x, y_real) in file order; the last batch may be smaller.

    ids: int64 [b]. x: `input`, RGB images, float32 [b, height, width, 3] in 0..255. y_real: `classes`, the
    label, int64 [b, 1]. Without files the images are seeded random ones, endlessly many, and y_real is empty.
    Raises ValueError when batch_size is not positive or the files do not fit together.
    """
    if batch_size < 1:
        raise ValueError(f"batch_size {batch_size}: expected 1 or more")
    if images_file is None or labels_file is None:
        return lambda: _random(height, width, batch_size)
    images, labels = np.load(images_file, mmap_mode="r"), np.load(labels_file)
    if images.shape != (len(labels), height, width, 3):
        wanted = (len(labels), height, width, 3)
        raise ValueError(f"{images_file}: images of shape {images.shape}, expected {wanted}")

    def batches() -> Iterator[Batch]:
        for first in range(0, len(labels), batch_size):
            rows = slice(first, first + batch_size)
            x: Arrays = {"input": images[rows].astype(np.float32)}
            y_real: Arrays = {"classes": labels[rows, np.newaxis]}
            yield np.arange(first, first + len(x["input"])), x, y_real

    return batches


def _random(height: int, width: int, batch_size: int) -> Iterator[Batch]:
    rng = np.random.default_rng(0)
    rows, columns = (np.arange(side) * PATCHES // side for side in (height, width))
    for first in count(0, batch_size):
        patches = rng.integers(0, 256, (batch_size, PATCHES, PATCHES, 3)).astype(np.float32)
        yield np.arange(first, first + batch_size), {"input": patches[:, rows][:, :, columns]}, {}
