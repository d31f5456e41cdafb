"""Metrics that need no Python of the user: their names, and the classes that an output names."""

from __future__ import annotations

from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]
Axes = tuple[int, ...]

WITH_FRAMEWORK = ("agreement", "cosine")
"""Our metrics that compare with the framework's answers, and take no labels."""
OWN = ("dice", "top5", *WITH_FRAMEWORK)
CLUSTERING = (
    *("adjusted_mutual_info_score", "adjusted_rand_score", "completeness_score", "fowlkes_mallows_score"),
    *("homogeneity_score", "mutual_info_score", "normalized_mutual_info_score", "rand_score"),
    "v_measure_score",
)
"""Scorers of scikit-learn that compare partitions: the numbers of their classes mean nothing."""
NUMBERS = ("r2", "explained_variance", "d2_absolute_error_score")
IGNORED = -100
"""The label of an element that does not count, as in PyTorch and Hugging Face."""


def of_numbers(metric: str) -> bool:
    """Whether the metric compares numbers; the others compare classes."""
    return metric in NUMBERS or (metric.startswith("neg_") and metric.endswith(("_error", "_deviance")))


def squeezed(shape: Axes) -> Axes:
    """A shape without axes of 1 at its end, but with two axes if it has them."""
    while len(shape) > 2 and shape[-1] == 1:
        shape = shape[:-1]
    return shape


def class_axis(shape: Axes, labels: Axes | None) -> int | None:
    """The axis of an output that counts the classes; None: its values are the answers themselves.

    Without that axis the output has the labels' shape (-1 fits any number). Where several axes fit, and
    without labels, images have it second and sequences last.
    """
    if len(shape) < 2 or (labels is not None and _fits(shape, labels)):
        return None
    fitting = [
        axis
        for axis in range(1, len(shape))
        if labels is None or _fits(shape[:axis] + shape[axis + 1 :], labels)
    ]
    if not fitting:
        raise ValueError(f"labels {list(labels or ())} fit no output {list(shape)}")
    return fitting[0] if len(shape) > 3 else fitting[-1]


def classes_of(answers: Array, axis: int | None, half: float) -> Array:
    """The class of each answer: the largest along an axis; of one number 0 or 1, whether it is over `half`;
    integers are classes themselves."""
    if axis is not None and answers.shape[axis] > 1:
        return np.asarray(answers.argmax(axis=axis))
    if axis is not None:
        answers = answers.squeeze(axis)
    return answers if answers.dtype.kind in "biu" else (answers > half).astype(np.int64)


def half_of(answers: Array) -> float:
    """Where class 1 begins in answers of one number: 0.5 of probabilities, 0 of logits."""
    return 0.5 if answers.size and answers.min() >= 0 and answers.max() <= 1 else 0.0


def _fits(shape: Axes, labels: Axes) -> bool:
    return len(shape) == len(labels) and all(
        have in (-1, want) or want == -1 for have, want in zip(shape[1:], labels[1:], strict=True)
    )
