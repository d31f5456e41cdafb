"""Arrays by tensor name, and comparing them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]
Arrays = dict[str, Array]


def concatenate(parts: Sequence[Array]) -> Array:
    """Batches put together. Where other axes differ, as those whose length depends on the data do, the
    shorter ones are padded with zeros at their end."""
    lengths = np.max([part.shape[1:] for part in parts], axis=0).astype(int)
    return np.concatenate([_padded(part, lengths) for part in parts])


def alike(one: Array, other: Array) -> tuple[Array, Array]:
    """Two arrays of as many axes, both padded with zeros to the longer of each axis."""
    lengths = np.maximum(one.shape[1:], other.shape[1:])
    return _padded(one, lengths), _padded(other, lengths)


def _padded(array: Array, lengths: Sequence[int] | Array) -> Array:
    missing = [int(want - have) for want, have in zip(lengths, array.shape[1:], strict=True)]
    return np.pad(array, [(0, 0), *((0, m) for m in missing)]) if any(missing) else array
