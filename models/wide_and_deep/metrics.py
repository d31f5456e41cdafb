"""Mean average precision at 12 within the displays, and area under the ROC curve over all ads."""

from collections.abc import Mapping
from typing import Any

import numpy as np
from columns import OUTPUT
from numpy.typing import NDArray

CUT = 12  # of the Outbrain Click Prediction contest, and of the published metric


class MetricsCalculator:
    """Collects click probabilities, labels and displays."""

    def __init__(self) -> None:
        self._batches: list[tuple[NDArray[Any], NDArray[Any], NDArray[Any]]] = []

    def update(
        self,
        ids: NDArray[np.int64],
        y_pred: Mapping[str, NDArray[Any]],
        x: Mapping[str, NDArray[Any]] | None = None,
        y_real: Mapping[str, NDArray[Any]] | None = None,
    ) -> None:
        """Take one batch: ids are displays [b]; probabilities and labels (0 or 1) are [b, 1].

        x belongs to the interface and is not used. Raises ValueError without labels, on another shape or NaN.
        """
        if not y_real:
            raise ValueError(f"no labels: y_real has no {OUTPUT}")
        display, predicted = np.asarray(ids), np.asarray(y_pred[OUTPUT], dtype=np.float64)
        label = np.asarray(y_real[OUTPUT])
        if predicted.shape != (len(display), 1) or label.shape != predicted.shape:
            raise ValueError(f"{OUTPUT}: shapes {predicted.shape} and {label.shape}, expected (batch, 1)")
        if np.isnan(predicted).any():
            raise ValueError(f"{OUTPUT}: has NaN")
        self._batches.append((display, predicted[:, 0], label[:, 0] > 0))

    @property
    def metrics(self) -> dict[str, float]:
        """`map12` over the displays with a click and `auc`, both 0..1.

        Raises ValueError before the first update and when all ads have the same label.
        """
        if not self._batches:
            raise ValueError("no ad was seen: call update first")
        display, predicted, clicked = map(np.concatenate, zip(*self._batches, strict=True))
        if clicked.all() or not clicked.any():
            raise ValueError("all ads have the same label: neither metric is defined")
        return {
            "map12": _mean_average_precision(display, predicted, clicked),
            "auc": _area_under_curve(predicted, clicked),
        }


def _mean_average_precision(
    display: NDArray[Any], predicted: NDArray[Any], clicked: NDArray[np.bool_]
) -> float:
    """Mean over the displays of: sum of precision at each clicked place up to CUT / clicks up to CUT."""
    # Equal probabilities stand in a fixed random order: a file that puts the click first gives nothing away.
    ties = np.random.default_rng(0).permutation(len(display))
    order = np.lexsort((ties, -predicted, display))
    hit = clicked[order]
    _, start, size = np.unique(display[order], return_index=True, return_counts=True)
    place = np.arange(len(hit)) - np.repeat(start, size) + 1
    so_far = np.cumsum(hit)
    found: NDArray[np.int64] = so_far - np.repeat(so_far[start] - hit[start], size)
    precision = np.add.reduceat(np.where(hit & (place <= CUT), found / place, 0.0), start)
    clicks = np.add.reduceat(hit.astype(np.int64), start)
    return float(np.mean(precision[clicks > 0] / np.minimum(clicks[clicks > 0], CUT)))


def _area_under_curve(predicted: NDArray[Any], clicked: NDArray[np.bool_]) -> float:
    """Share of pairs of a clicked and another ad that stand in the right order; equals count half."""
    _, value, count = np.unique(predicted, return_inverse=True, return_counts=True)
    rank = (np.cumsum(count) - (count - 1) / 2)[value]
    positive = int(clicked.sum())
    pairs = positive * (len(clicked) - positive)
    return float((rank[clicked].sum() - positive * (positive + 1) / 2) / pairs)
