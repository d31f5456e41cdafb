"""A data loader in the published style: its flags are its arguments."""

import numpy as np
from clouds import points


def get_dataloader_fn(*, count: int = 100, batch_size: int = 1):
    """Batches of (ids, x, y_real); the last one may be smaller."""

    def loader():
        x, labels = points(count, seed=2)
        for start in range(0, count, batch_size):
            part = slice(start, start + batch_size)
            ids = [f"point {i}" for i in range(start, min(start + batch_size, count))]
            yield ids, {"input__0": x[part]}, {"output__0": np.eye(2, dtype=np.float32)[labels[part]]}

    return loader
