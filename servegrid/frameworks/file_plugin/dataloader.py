"""The samples, in order. They have no labels."""

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np


def get_dataloader_fn(batch_size: int, samples: str) -> Callable[[], Iterator[Any]]:
    """Batches of (ids, x, y_real); y_real is empty."""

    def batches() -> Iterator[Any]:
        with np.load(samples) as file:
            x = {name: file[name] for name in file}
        count = len(next(iter(x.values())))
        for start in range(0, count, batch_size):
            ids = np.arange(start, min(start + batch_size, count))
            yield ids, {name: array[ids] for name, array in x.items()}, {}

    return batches
