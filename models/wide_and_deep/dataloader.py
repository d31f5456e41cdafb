"""Batches of the network's inputs, in the order of the parquet files."""

from collections.abc import Callable, Iterator

import numpy as np
from columns import DISPLAY, HOTNESS, LABEL, MULTI_HOT, NUMERIC, OUTPUT, PADDING, Tables, tables_of
from numpy.typing import NDArray
from parquet import Arrays, inputs, parquet_files, read_columns

Batch = tuple[NDArray[np.int64], Arrays, Arrays]
LONGEST_AGE = np.log1p(3650)  # the published preprocessing drops ages over ten years


def get_dataloader_fn(
    feature_set: str, batch_size: int, data: str | None = None
) -> Callable[[], Iterator[Batch]]:
    """Return a function whose iterator yields (ids, x, y_real).

    ids: int64 [b], the display that each ad stands in. x: every column, see parquet.inputs. y_real: the
    output's name -> float32 [b, 1], 1 where the ad was clicked. The last batch of a file may be smaller.
    Without `data` it yields seeded random columns without end, ids that count up and an empty y_real.
    Raises ValueError when batch_size is not positive or a file is not what it should be.
    """
    if batch_size < 1:
        raise ValueError(f"batch_size {batch_size}: expected 1 or more")
    tables = tables_of(feature_set)
    if data is None:
        return lambda: _random(tables, batch_size)
    files = parquet_files(data)

    def batches() -> Iterator[Batch]:
        for file in files:
            for frame in read_columns(file).iter_slices(batch_size):
                try:
                    x = inputs(frame, tables)
                except ValueError as error:
                    raise ValueError(f"{file}: {error}") from error
                clicked = frame[LABEL].to_numpy().astype(np.float32).reshape(-1, 1)
                yield frame[DISPLAY].to_numpy().astype(np.int64), x, {OUTPUT: clicked}

    return batches


def _random(tables: Tables, batch_size: int) -> Iterator[Batch]:
    """Columns in the ranges that the published preprocessing leaves; each list holds 0 to HOTNESS ids."""
    rng = np.random.default_rng(0)
    first = 0
    while True:
        x: Arrays = {}
        for column in NUMERIC:
            if column.endswith("_count"):
                values = rng.normal(size=(batch_size, 1))
            elif column.endswith("_days_since_published"):
                values = rng.uniform(0, LONGEST_AGE, size=(batch_size, 1))
            else:
                values = rng.uniform(size=(batch_size, 1))
            x[column] = values.astype(np.float32)
        for column, (rows, _) in tables.items():
            width = HOTNESS if column in MULTI_HOT else 1
            x[column] = rng.integers(rows, size=(batch_size, width), dtype=np.int32)
            if column in MULTI_HOT:
                length = rng.integers(HOTNESS + 1, size=(batch_size, 1))
                x[column][np.arange(HOTNESS) >= length] = PADDING
        yield np.arange(first, first + batch_size), x, {}
        first += batch_size
