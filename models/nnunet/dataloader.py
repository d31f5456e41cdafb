"""Batches of patches for nnU-Net."""

from collections.abc import Callable, Iterator

import numpy as np
from numpy.typing import NDArray

Arrays = dict[str, NDArray[np.generic]]
Batch = tuple[NDArray[np.int64], Arrays, Arrays]

SEED = 0  # of the patches, where there are no volumes


def get_dataloader_fn(
    channels: int, size: int, batch_size: int, volumes: str | None = None, labels: str | None = None
) -> Callable[[], Iterator[Batch]]:
    """Return a function whose iterator yields (ids, x, y_real) in file order; the last batch may be smaller.

    ids: int64 [b]. x: INPUT__0, float32 [b, channels, size, size, size]. y_real: OUTPUT__0, the classes,
    uint8 [b, size, size, size]. Without files it never ends: x is noise in a ball, zero around it, as a
    normalised head is, and y_real is empty. Raises ValueError when batch_size is not positive or the files
    have other shapes.
    """
    if batch_size < 1:
        raise ValueError(f"batch_size {batch_size}: expected 1 or more")
    if volumes is None or labels is None:
        return lambda: _noise(channels, size, batch_size)
    # Mapped: the published patches together are over 3 GB.
    images, classes = np.load(volumes, mmap_mode="r"), np.load(labels, mmap_mode="r")
    cube = (size, size, size)
    if images.shape[1:] != (channels, *cube) or classes.shape != (len(images), *cube):
        raise ValueError(
            f"{volumes} {images.shape} and {labels} {classes.shape}: "
            f"expected (n, {channels}) and (n), then {cube}"
        )

    def batches() -> Iterator[Batch]:
        for first in range(0, len(images), batch_size):
            rows = slice(first, first + batch_size)
            x, y_real = np.array(images[rows]), np.array(classes[rows])
            yield np.arange(first, first + len(x)), {"INPUT__0": x}, {"OUTPUT__0": y_real}

    return batches


def _noise(channels: int, size: int, batch_size: int) -> Iterator[Batch]:
    rng = np.random.default_rng(SEED)
    line = np.linspace(-1, 1, size) ** 2
    ball = line[:, None, None] + line[:, None] + line <= 1
    first = 0
    while True:
        x = rng.standard_normal((batch_size, channels, size, size, size), dtype=np.float32)
        x *= ball
        yield np.arange(first, first + batch_size), {"INPUT__0": x}, {}
        first += batch_size
