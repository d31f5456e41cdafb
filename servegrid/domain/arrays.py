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

EXACT = "biu"
"""NumPy's kinds of types whose values are equal or not: booleans and integers."""
WIDER = {
    np.dtype(narrow): np.dtype(wide)
    for narrow, wide in {
        "bool": "int16", "int8": "int16", "uint8": "int16",
        "int16": "int32", "uint16": "int32", "int32": "int64", "uint32": "int64",
    }.items()
}  # fmt: skip
"""Type of an answer -> the one that also holds a value which is no answer."""
PADDING: dict[np.dtype[Any], int] = {
    np.dtype(name): int(np.iinfo(name).min) for name in ("int16", "int32", "int64")
}
PADDING[np.dtype("uint64")] = int(np.iinfo("uint64").max)
"""Type -> the value behind the end of a shorter answer. No wider type is there for 64 bits."""


def concatenate(parts: Sequence[Array]) -> Array:
    """Batches of inputs or labels in one array. Where other axes differ, as those whose length depends on the
    data do, the shorter ones are padded with zeros at their end."""
    lengths = _longest(parts)
    return np.concatenate([_padded(part, lengths, 0) for part in parts])


def concatenate_answers(parts: Sequence[Array]) -> Array:
    """Batches of answers in one array. Shorter ones are padded: floats with zeros, and booleans and integers,
    whose 0 may be an answer, with `PADDING` of a wider type."""
    lengths = _longest(parts)
    return np.concatenate([_padded_answers(part, lengths) for part in parts])


def without_padding(tensor: Tensor, answers: Array) -> Array:
    """The answers of a tensor as a metric takes them: padded with zeros, in their own type."""
    padded = _is_padding(tensor, answers)
    return np.where(padded, 0, answers).astype(tensor.dtype) if padded.any() else answers


def alike(one: Array, other: Array) -> tuple[Array, Array]:
    """Two arrays of answers with as many axes, both padded to the longer of each axis."""
    lengths = np.maximum(one.shape[1:], other.shape[1:])
    return _padded_answers(one, lengths), _padded_answers(other, lengths)


def _longest(parts: Sequence[Array]) -> Array:
    return np.asarray(np.max([part.shape[1:] for part in parts], axis=0).astype(int))


def _padded_answers(array: Array, lengths: Array) -> Array:
    if array.dtype.kind in EXACT and array.shape[1:] != tuple(lengths):
        array = array.astype(WIDER.get(array.dtype, array.dtype))
        return _padded(array, lengths, PADDING[array.dtype])
    return _padded(array, lengths, 0)


def _is_padding(tensor: Tensor, answers: Array) -> Array:
    """Where an array of answers is padded; of a tensor without a free axis it nowhere is."""
    if -1 not in tensor.shape[1:] or answers.dtype not in PADDING:
        return np.zeros(answers.shape, bool)
    return np.asarray(answers == PADDING[answers.dtype])


def _padded(array: Array, lengths: Array, value: int) -> Array:
    missing = [int(want - have) for want, have in zip(lengths, array.shape[1:], strict=True)]
    if not any(missing):
        return array
    return np.pad(array, [(0, 0), *((0, m) for m in missing)], constant_values=value)


class TensorMatch(Value):
    """One output against the expected one. `excess` is how far the worst value is beyond the tolerance
    (0: none is); an output of integers or booleans has an `agreement` (share of equal values) and no cosine.
    `not_finite` is the share of values that are NaN or infinite, and the same, in both."""

    output: str
    largest_difference: float
    excess: float
    least_cosine: float | None
    agreement: float | None
    not_finite: float = 0.0

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
    """Every output of the interface, sample by sample. Axes of free length may differ: a float array may be
    longer by zeros, and in an array of integers or booleans what only one side has does not agree."""
    return tuple(_match(t, found[t.name], expected[t.name], tolerances.of(t.name)) for t in tensors)


def _match(tensor: Tensor, found: Array, expected: Array, tolerance: Tolerance) -> TensorMatch:
    exact = expected.dtype.kind in EXACT
    if not _comparable(tensor, found, expected):
        return _unlike(tensor.name, exact)
    if exact:
        return _match_exactly(tensor, found, expected)
    return _match_floats(tensor.name, found, expected, tolerance)


def _unlike(name: str, exact: bool) -> TensorMatch:
    return TensorMatch(
        output=name,
        largest_difference=math.inf,
        excess=math.inf,
        least_cosine=None if exact else -1.0,
        agreement=0.0 if exact else None,
    )


def _comparable(tensor: Tensor, found: Array, expected: Array) -> bool:
    """Whether shapes differ only along free axes."""
    if found.ndim != expected.ndim or len(found) != len(expected):
        return False
    fixed = [i for i, axis in enumerate(tensor.shape) if axis != -1]
    return all(found.shape[i] == expected.shape[i] for i in fixed)


def _match_exactly(tensor: Tensor, found: Array, expected: Array) -> TensorMatch:
    have, want = alike(found, expected)
    # An 80-bit float holds every integer of 64 bits, signed or not; a 64-bit one only those up to 2^53.
    difference = np.abs(have.astype(np.longdouble) - want.astype(np.longdouble))
    absent = [_is_padding(tensor, array) for array in (have, want)]
    equal = (difference == 0) & (absent[0] == absent[1])
    counted = ~(absent[0] & absent[1])
    return TensorMatch(
        output=tensor.name,
        largest_difference=float(difference.max(initial=0.0)),
        excess=0.0,
        least_cosine=None,
        agreement=float(equal[counted].mean()) if counted.any() else 1.0,
    )


def _match_floats(name: str, found: Array, expected: Array, tolerance: Tolerance) -> TensorMatch:
    have, want = (array.astype(np.float64) for array in alike(found, expected))
    finite = np.isfinite(have) & np.isfinite(want)
    same = (have == want) | (np.isnan(have) & np.isnan(want))
    if not (finite | same).all():
        return _unlike(name, exact=False)
    have, want = np.where(finite, have, 0.0), np.where(finite, want, 0.0)
    with np.errstate(over="ignore"):  # beyond the largest float is far enough
        difference = np.abs(have - want)
        excess = difference - tolerance.absolute - tolerance.relative * np.abs(want)
    return TensorMatch(
        output=name,
        largest_difference=float(difference.max(initial=0.0)),
        excess=max(float(excess.max(initial=0.0)), 0.0),
        least_cosine=float(_cosines(have, want).min(initial=1.0)),
        agreement=None,
        not_finite=float((~finite).mean()) if finite.size else 0.0,
    )


def _cosines(have: Array, want: Array) -> Array:
    """One a sample; two samples of zeros are alike, zeros and a sample are not."""
    have, want = (_scaled(array.reshape(len(array), -1)) for array in (have, want))
    norms = np.linalg.norm(have, axis=1) * np.linalg.norm(want, axis=1)
    same = (have == want).all(axis=1)
    cosines: Array = np.where(norms > 0, (have * want).sum(axis=1) / np.where(norms > 0, norms, 1), same)
    return cosines


def _scaled(rows: Array) -> Array:
    """Each row divided by its largest value, so that no square of a large or tiny one leaves the range."""
    largest = np.abs(rows).max(axis=1, keepdims=True, initial=0.0)
    return np.asarray(rows / np.where(largest > 0, largest, 1.0))
