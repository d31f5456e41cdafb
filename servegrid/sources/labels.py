"""Reads the labels of a stock metric, and checks that they fit the output and the samples."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import polars as pl

from servegrid.domain.errors import UserError
from servegrid.domain.values import Tensor
from servegrid.frameworks.metric_kinds import IGNORED, Array, class_axis, of_numbers, squeezed


def read_labels(path: Path, output: str) -> Array:
    """The labels of a file, the samples first: the only array of an .npz file or the one with the output's
    name, or the columns of a .csv file below its header. One column is one label for each sample.

    Raises:
        UserError: there is no such file, or it does not hold numbers.
    """
    if not path.is_file():
        raise UserError(f"{_where(path)}: no such file")
    if path.suffix not in (".npz", ".csv"):
        raise UserError(f"{_where(path)}: give an .npz file with one array, or a .csv file with a header")
    try:
        found: Array = _of_csv(path) if path.suffix == ".csv" else _of_npz(path, output)
    except UserError:
        raise
    except Exception as error:  # of any kind, depending on the content
        text = " ".join(str(error).split())[:200]
        raise UserError(f"{_where(path)}: it cannot be read as {path.suffix}: {text}") from error
    if found.dtype.kind not in "biuf":
        raise UserError(f"{_where(path)}: labels are {found.dtype}; give numbers: of classes those from 0")
    if not found.ndim:
        raise UserError(f"{_where(path)}: one number; the first axis counts the samples")
    if found.dtype.kind == "f" and not np.isfinite(found).all():
        raise UserError(f"{_where(path)}: label {_first(~np.isfinite(found))} is not a finite number")
    return found.reshape(squeezed(found.shape)) if found.shape[1:] != (1,) else found[:, 0]


def check_labels(
    labels: Array, path: Path, metric: str, output: Tensor, samples: int, *, all_: bool
) -> Array:
    """The labels of the samples, as the metric takes them; `output` has no named axes.

    Raises:
        UserError: there are too few, or, if they are `all_`, too many; or the output has no such class or
            shape.
    """
    if len(labels) < samples or (all_ and len(labels) != samples):
        raise UserError(f"{_where(path)}: {len(labels)} labels for {samples} samples")
    labels = labels[:samples]
    shape = squeezed(tuple(axis if isinstance(axis, int) else -1 for axis in output.shape))
    if of_numbers(metric):
        sizes = [int(np.prod(axes)) for axes in (labels.shape[1:], shape[1:])]
        if -1 not in shape[1:] and sizes[0] != sizes[1]:
            raise UserError(_misfit(path, labels, output))
        return labels
    if not np.array_equal(labels, labels.astype(np.int64)):
        wrong = _first(labels != labels.astype(np.int64))
        raise UserError(f"{_where(path)}: {metric} compares classes, and label {wrong} is not a whole number")
    labels = labels.astype(np.int64)
    try:
        axis = class_axis((-1, *shape[1:]), labels.shape)
    except ValueError as error:
        raise UserError(_misfit(path, labels, output)) from error
    count = _classes(output, shape, axis, labels)
    wrong_class = (labels < 0) & (labels != IGNORED)
    if count is not None:
        wrong_class |= labels >= count
    if wrong_class.any():
        found = labels[wrong_class].flat[0]
        known = f"classes 0 to {count - 1}" if count is not None else "classes from 0"
        raise UserError(
            f"{_where(path)}: label {_first(wrong_class)} is {found}; {output.name!r} has {known}"
        )
    return labels


def _classes(output: Tensor, shape: tuple[int, ...], axis: int | None, labels: Array) -> int | None:
    """How many classes the output has; None: it does not say."""
    if axis is None:
        return 2 if output.dtype.startswith("float") else None
    return None if shape[axis] == -1 else max(shape[axis], 2)


def _of_npz(path: Path, output: str) -> Array:
    with np.load(path, allow_pickle=False) as file:
        names = list(file)
        name = output if output in names else names[0] if len(names) == 1 else None
        if name is None:
            raise UserError(
                f"{_where(path)}: arrays {', '.join(names) or 'none'}; give one, or one named {output!r}"
            )
        return np.asarray(file[name])


def _of_csv(path: Path) -> Array:
    table = pl.read_csv(path)
    wrong = [name for name, kind in table.schema.items() if not kind.is_numeric() and kind != pl.Boolean]
    if wrong:
        raise UserError(
            f"{_where(path)}: column {wrong[0]!r} holds {table[wrong[0]].dtype}; give numbers: of classes "
            "those from 0"
        )
    for name in table.columns:
        if table[name].null_count():
            raise UserError(f"{_where(path)}: column {name!r} has rows without a label")
    return np.asarray(table.to_numpy())


def _misfit(path: Path, labels: Array, output: Tensor) -> str:
    return f"{_where(path)}: labels {list(labels.shape)} fit no output {output.name!r} {list(output.shape)}"


def _first(wrong: Array) -> str:
    """Where the first wrong label is."""
    place = np.argwhere(wrong)[0].tolist()
    return str(place[0] if len(place) == 1 else place)


def _where(path: Path) -> str:
    return f"--labels {path}"
