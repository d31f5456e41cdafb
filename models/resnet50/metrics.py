"""Top-1 and top-5 accuracy of an image classifier."""

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

TOP = 5


class MetricsCalculator:
    """Counts images whose label is the answer, and those whose label is among the five likeliest classes."""

    def __init__(self) -> None:
        self._seen = self._first = self._among = 0

    def update(
        self,
        ids: NDArray[np.int64],
        y_pred: Mapping[str, NDArray[Any]],
        x: Mapping[str, NDArray[Any]],
        y_real: Mapping[str, NDArray[Any]],
    ) -> None:
        """Take one batch: `classes` int [b, 1], predicted and real; `probabilities` float [b, num_classes].

        Of classes that are equally likely the one with the lower index comes first. ids and x belong to the
        interface and are not used. Raises ValueError on other shapes.
        """
        answer, probabilities = y_pred["classes"], y_pred["probabilities"]
        label = np.asarray(y_real["classes"], dtype=np.int64)
        wanted = (len(label), 1)
        if not answer.shape == label.shape == wanted or len(probabilities) != len(label):
            shapes = f"{answer.shape}, {probabilities.shape} and {label.shape}"
            raise ValueError(f"classes, probabilities and labels of shapes {shapes}, expected {wanted} each")
        likeliest = np.argsort(-probabilities, axis=1, kind="stable")[:, :TOP]
        self._seen += len(label)
        self._first += int((answer == label).sum())
        self._among += int((likeliest == label).any(axis=1).sum())

    @property
    def metrics(self) -> dict[str, float]:
        """Shares of the images seen so far, 0..1. Raises ValueError before the first update."""
        if not self._seen:
            raise ValueError("no image was seen: call update first")
        return {"top1": self._first / self._seen, "top5": self._among / self._seen}
