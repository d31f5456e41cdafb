"""The framework's answers to a model's samples, against which served answers are checked."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from servegrid.domain.arrays import Arrays, match
from servegrid.domain.tolerances import Tolerances
from servegrid.domain.values import Tensor, Value


class Reference(Value):
    """`answers` is an .npz file with an array for each of `outputs`, a row a sample; `tolerances` bound how
    far a served answer may be from it."""

    answers: Path
    outputs: tuple[Tensor, ...]
    tolerances: Tolerances


class Expected:
    """The answers of a reference, read once."""

    def __init__(self, reference: Reference) -> None:
        self._reference = reference
        with np.load(reference.answers) as file:
            self._answers: Arrays = {tensor.name: file[tensor.name] for tensor in reference.outputs}

    def failures(self, start: int, size: int, found: Arrays) -> list[str]:
        """Every bound that the answer to one batch does not hold. The batch has `size` samples from `start`
        on, as `Samples.batch` takes them."""
        reference = self._reference
        missing = [tensor.name for tensor in reference.outputs if tensor.name not in found]
        if missing:
            return [f"{name}: the answer does not have it" for name in missing]
        rows = (start + np.arange(size)) % len(next(iter(self._answers.values())))
        expected = {name: array[rows] for name, array in self._answers.items()}
        found_matches = match(reference.outputs, found, expected, reference.tolerances)
        return [why for m in found_matches for why in m.failures(reference.tolerances.of(m.output))]
