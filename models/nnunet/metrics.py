"""Dice of a segmentation model."""

from collections.abc import Mapping
from typing import Any

import numpy as np
from dice import dice_scores
from numpy.typing import NDArray


class MetricsCalculator:
    """Dice of each foreground class, averaged over the volumes seen."""

    def __init__(self, classes: int) -> None:
        """classes: with the background, class 0, which is not scored."""
        self._classes = classes
        self._sum = np.zeros(classes - 1)
        self._count = 0

    def update(
        self,
        ids: NDArray[np.int64],
        y_pred: Mapping[str, NDArray[Any]],
        x: Mapping[str, NDArray[Any]],
        y_real: Mapping[str, NDArray[Any]],
    ) -> None:
        """Take one batch: logits, [b, classes, D, H, W], in y_pred, and classes, [b, D, H, W], in y_real.

        Both are named OUTPUT__0. ids and x belong to the interface and are not used. Raises ValueError on
        other shapes.
        """
        logits, real = y_pred["OUTPUT__0"], y_real["OUTPUT__0"]
        expected = (len(real), self._classes, *real.shape[1:])
        if logits.shape != expected:
            raise ValueError(f"OUTPUT__0: shape {logits.shape}, expected {expected} (b, classes, D, H, W)")
        for answer, classes in zip(logits, real, strict=True):  # one at a time: a batch may be gigabytes
            self._sum += dice_scores(answer.argmax(axis=0), classes, self._classes)
            self._count += 1

    @property
    def metrics(self) -> dict[str, float]:
        """`mean_dice`, and by class `dice_1` and so on, all 0..1. Raises ValueError before any update."""
        if not self._count:
            raise ValueError("no volume was seen: call update first")
        scores = self._sum / self._count
        by_class = {f"dice_{number}": float(score) for number, score in enumerate(scores, start=1)}
        return {"mean_dice": float(scores.mean()), **by_class}
