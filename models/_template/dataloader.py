"""The data: points in order, and their labels."""

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np


def get_dataloader_fn(batch_size: int, points: str | None = None) -> Callable[[], Iterator[Any]]:
    """Batches of (ids, x, y_real); y_real holds the label's one-hot. Random points have no labels."""

    def batches() -> Iterator[Any]:
        """The points, in order."""
        data = np.load(points)
        for start in range(0, len(data["x"]), batch_size):
            x, labels = (data[k][start : start + batch_size] for k in ("x", "labels"))
            ids = np.arange(start, start + len(x))
            yield ids, {"input__0": x}, {"output__0": np.eye(3, dtype=np.float32)[labels]}

    def random_batches() -> Iterator[Any]:
        rng = np.random.default_rng(0)
        while True:
            yield np.arange(batch_size), {"input__0": rng.normal(size=(batch_size, 4)).astype(np.float32)}, {}

    return batches if points else random_batches
