"""The points, in order."""

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np


def get_dataloader_fn(points: str, batch_size: int) -> Callable[[], Iterator[Any]]:
    """Batches of (ids, x, y_real); y_real holds the label's one-hot."""

    def batches() -> Iterator[Any]:
        data = np.load(points)
        for start in range(0, len(data["x"]), batch_size):
            x, labels = (data[k][start : start + batch_size] for k in ("x", "labels"))
            ids = np.arange(start, start + len(x))
            yield ids, {"input__0": x}, {"output__0": np.eye(3, dtype=np.float32)[labels]}

    return batches
