"""Arrays by tensor name, and comparing them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from servegrid.domain.tolerances import Tolerance, Tolerances
from servegrid.domain.values import Tensor, Value

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


class TensorMatch(Value):
    """One output against the expected one. `excess` is how far the worst value is beyond the tolerance
    (0: none is); an integer output has an `agreement` (share of equal values) and no cosine."""

    output: str
    largest_difference: float
    excess: float
    least_cosine: float | None
    agreement: float | None

    def failures(self, tolerance: Tolerance) -> list[str]:
        """Every bound that does not hold, with its figures."""
        if self.agreement is not None:
            if self.agreement >= tolerance.agreement:
                return []
            return [
                f"{self.output}: {self.agreement:.4f} of its values agree, {tolerance.agreement:g} wanted"
            ]
        found = []
        if not self.excess <= 0:
            allowed = f"{tolerance.absolute:g}"
            if tolerance.relative:
                allowed += f" + {tolerance.relative:g} x the value"
            found.append(f"{self.output}: {self.largest_difference:.3g} off, {allowed} allowed")
        assert self.least_cosine is not None
        if not self.least_cosine >= tolerance.cosine:
            found.append(f"{self.output}: cosine {self.least_cosine:.6f}, {tolerance.cosine:g} wanted")
        return found


def match(
    tensors: tuple[Tensor, ...], found: Arrays, expected: Arrays, tolerances: Tolerances
) -> tuple[TensorMatch, ...]:
    """Every output of the interface, sample by sample. Axes of free length may differ: the shorter
    array is padded with zeros."""
    return tuple(_match(t, found[t.name], expected[t.name], tolerances.of(t.name)) for t in tensors)


def _match(tensor: Tensor, found: Array, expected: Array, tolerance: Tolerance) -> TensorMatch:
    name, integers = tensor.name, np.issubdtype(expected.dtype, np.integer)
    if not _comparable(tensor, found, expected):
        return TensorMatch(
            output=name,
            largest_difference=math.inf,
            excess=math.inf,
            least_cosine=None if integers else -1.0,
            agreement=0.0 if integers else None,
        )
    have, want = alike(found.astype(np.float64), expected.astype(np.float64))
    difference = np.abs(have - want)
    if integers:
        return TensorMatch(
            output=name,
            largest_difference=float(difference.max(initial=0.0)),
            excess=0.0,
            least_cosine=None,
            agreement=float((have == want).mean()) if have.size else 1.0,
        )
    excess = difference - tolerance.absolute - tolerance.relative * np.abs(want)
    return TensorMatch(
        output=name,
        largest_difference=float(difference.max(initial=0.0)),
        excess=max(float(excess.max(initial=0.0)), 0.0),
        least_cosine=float(_cosines(have, want).min(initial=1.0)),
        agreement=None,
    )


def _comparable(tensor: Tensor, found: Array, expected: Array) -> bool:
    """Whether shapes differ only along free axes, and every value is finite."""
    if found.ndim != expected.ndim or len(found) != len(expected):
        return False
    fixed = [i for i, axis in enumerate(tensor.shape) if axis != -1]
    return all(found.shape[i] == expected.shape[i] for i in fixed) and bool(np.isfinite(found).all())


def _cosines(have: Array, want: Array) -> Array:
    """One a sample; two samples of zeros are alike, zeros and a sample are not."""
    have, want = have.reshape(len(have), -1), want.reshape(len(want), -1)
    norms = np.linalg.norm(have, axis=1) * np.linalg.norm(want, axis=1)
    same = (have == want).all(axis=1)
    cosines: Array = np.where(norms > 0, (have * want).sum(axis=1) / np.where(norms > 0, norms, 1), same)
    return cosines
