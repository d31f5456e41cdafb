"""Outbrain click data as the published preprocessing writes it: a folder of parquet files."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
from columns import DISPLAY, HOTNESS, LABEL, MULTI_HOT, NUMERIC, ONE_HOT, PADDING, Tables
from numpy.typing import NDArray

Arrays = dict[str, NDArray[Any]]
COLUMNS = (*NUMERIC, *ONE_HOT, *MULTI_HOT, LABEL, DISPLAY)


def parquet_files(folder: str | Path) -> list[Path]:
    """The parquet files of a folder in the order of their names, each with every column.

    Raises ValueError, naming the folder or the file and the column, when one is missing or of another type.
    """
    files = sorted(Path(folder).glob("*.parquet"))
    if not files:
        raise ValueError(f"{folder}: no *.parquet; expected the preprocessed validation set, valid/*.parquet")
    for file in files:
        _check_schema(file)
    return files


def read_columns(file: Path) -> pl.DataFrame:
    """The rows of one file, one ad of a display each."""
    return pl.read_parquet(file, columns=list(COLUMNS))


def inputs(frame: pl.DataFrame, tables: Tables) -> Arrays:
    """The network's inputs, batch first: float32 [b, 1], int32 [b, 1] and int32 [b, HOTNESS].

    Raises ValueError, naming the column, on a null or an id that its table has no row for.
    """
    x: Arrays = {}
    for column in (*NUMERIC, *ONE_HOT):
        dtype = np.float32 if column in NUMERIC else np.int32
        if frame[column].null_count():
            raise ValueError(f"column {column}: has nulls; expected a value in every row")
        x[column] = frame[column].to_numpy().astype(dtype).reshape(-1, 1)
    for column in MULTI_HOT:
        ids = [pl.col(column).list.get(place, null_on_oob=True) for place in range(HOTNESS)]
        lists = frame.select(i.fill_null(PADDING).alias(str(n)) for n, i in enumerate(ids))
        x[column] = np.ascontiguousarray(lists.to_numpy(), dtype=np.int32)
    for column, (rows, _) in tables.items():
        lowest = PADDING if column in MULTI_HOT else 0
        low, high = int(x[column].min(initial=0)), int(x[column].max(initial=0))
        if low < lowest or high >= rows:
            raise ValueError(f"column {column}: ids {low} to {high}; its table has rows 0 to {rows - 1}")
    return x


def _check_schema(file: Path) -> None:
    try:
        schema = pl.read_parquet_schema(file)
    except (pl.exceptions.PolarsError, OSError) as error:
        raise ValueError(f"{file}: not a parquet file ({error})") from error
    if missing := [column for column in COLUMNS if column not in schema]:
        raise ValueError(f"{file}: no column {', '.join(missing)}; expected the preprocessed Outbrain data")
    for column in COLUMNS:
        found = schema[column]
        is_list = isinstance(found, pl.List)
        inner = found.inner if isinstance(found, pl.List) else found
        fits = inner.is_numeric() if column in (*NUMERIC, LABEL) else inner.is_integer()
        if not fits or is_list != (column in MULTI_HOT):
            wanted = "a list of integers" if column in MULTI_HOT else "an integer"
            wanted = "a number" if column in (*NUMERIC, LABEL) else wanted
            raise ValueError(f"{file}: column {column} is {found}; expected {wanted}")
