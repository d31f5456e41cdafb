"""The step that computes a stock metric: one of scikit-learn's scorers, or of our own."""

from __future__ import annotations

import json
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
from scipy.special import expit, softmax
from sklearn.base import BaseEstimator, ClassifierMixin, RegressorMixin
from sklearn.metrics import f1_score, get_scorer, top_k_accuracy_score

from servegrid.frameworks.fields import StockScoreJob
from servegrid.frameworks.metric_kinds import (
    IGNORED,
    Array,
    class_axis,
    classes_of,
    half_of,
    of_numbers,
    squeezed,
)

PERMUTATIONS = 99
"""A framework whose score beats them all does so by chance once in a hundred times."""

Score = Callable[[Array], float]


def score(job: StockScoreJob) -> None:
    """`metrics.json`: the metric of several sets of predictions for the same samples.

    Each set is an input of the job: an .npz file with one array per output; so are `labels`, if the metric
    has them. `permuted`, if wanted, is the best score of the framework's answers in random orders.

    Raises:
        ValueError: labels and answers do not fit, or scikit-learn refuses them.
    """
    fields = job.fields
    answers = {name: _read(job.inputs[name], fields.output) for name in fields.predictions}
    framework = answers["framework"]
    labels = _read(job.inputs["labels"], "labels") if "labels" in job.inputs else None
    metric = stock_metric(fields.metric, framework, labels)
    result = {name: metric(array) for name, array in answers.items()}
    if fields.permuted:
        rng = np.random.default_rng(0)
        result["permuted"] = max(metric(rng.permutation(framework)) for _ in range(PERMUTATIONS))
    for name, value in result.items():
        print(f"{name}: {fields.metric} {value:.4f}")
    found = {name: {fields.metric: value} for name, value in result.items()}
    (job.output / "metrics.json").write_text(json.dumps(found, indent=1), encoding="utf-8")


def stock_metric(name: str, framework: Array, labels: Array | None) -> Score:
    """The metric as a function of answers; the framework's tell logits from probabilities."""
    framework = framework.reshape(squeezed(framework.shape))
    shape = framework.shape
    if name == "cosine":
        return lambda answers: _cosine(framework, answers.reshape(shape))
    half = half_of(framework)
    if name == "agreement":
        axis = class_axis(shape, None)
        expected = classes_of(framework, axis, half)
        return lambda answers: float(np.mean(classes_of(answers.reshape(shape), axis, half) == expected))
    if labels is None:
        raise ValueError(f"the metric {name} needs labels: give --labels, or y_real in dataloader.py")
    if of_numbers(name):
        numbers = labels.reshape(len(labels), -1).astype(np.float64)
        scorer = get_scorer(name)
        return lambda answers: float(
            scorer(_Numbers(answers.reshape(numbers.shape)), _rows(numbers), numbers)
        )
    return _of_classes(name, shape, half, labels)


def _of_classes(name: str, shape: tuple[int, ...], half: float, labels: Array) -> Score:
    labels = labels.astype(np.int64)
    if labels.ndim == 2 and labels.shape == shape and (np.sort(labels)[:, -2:] == (0, 1)).all():
        labels = labels.argmax(axis=1)  # one-hot rows name classes
    axis = class_axis(shape, labels.shape)
    if name == "dice":
        return lambda answers: _dice(classes_of(answers.reshape(shape), axis, half), labels)
    if axis is None and labels.ndim == 2:
        kept, wanted = np.ones(len(labels), bool), labels  # a row holds 0 or 1 for each class
    else:
        flat = labels.reshape(-1)
        kept = flat != IGNORED
        wanted = flat[kept]
    count = 1 if axis is None else shape[axis]

    def rows(answers: Array) -> Array:
        """The answers, one row for each label that counts."""
        answers = answers.reshape(shape)
        if axis is not None:
            return np.moveaxis(answers, axis, -1).reshape(-1, count)[kept]
        return answers[kept] if wanted.ndim == 2 else answers.reshape(-1, 1)[kept]

    if name == "top5":
        known = np.arange(count)
        return lambda answers: float(top_k_accuracy_score(wanted, rows(answers), k=5, labels=known))
    scorer = get_scorer(name)

    def found(answers: Array) -> float:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of classes without a sample, also of every permutation
            return float(scorer(_classifier(rows(answers), wanted.ndim == 2, half), _rows(wanted), wanted))

    return found


class _Numbers(RegressorMixin, BaseEstimator):  # type: ignore[misc]
    """A regressor whose predictions are given."""

    def __init__(self, answers: Array) -> None:
        self.answers = answers

    def predict(self, x: Array) -> Array:
        """The answers to the rows `x`."""
        return self.answers[x]


class _Classes(ClassifierMixin, BaseEstimator):  # type: ignore[misc]
    """A classifier whose predictions and probabilities are given."""

    def __init__(self, classes: Any, predicted: Array, probabilities: Array) -> None:
        self.classes_, self.predicted, self.probabilities = classes, predicted, probabilities

    def predict(self, x: Array) -> Array:
        """The classes of the rows `x`."""
        return self.predicted[x]

    def predict_proba(self, x: Array) -> Array:
        """Their probabilities."""
        return self.probabilities[x]


class _Ranked(_Classes):
    """One with a score of its own for class 1, or for each label: a probability may round to 1."""

    def __init__(self, classes: Any, predicted: Array, probabilities: Array, scores: Array) -> None:
        super().__init__(classes, predicted, probabilities)
        self.scores = scores

    def decision_function(self, x: Array) -> Array:
        """The scores of the rows `x`."""
        return self.scores[x]


def _classifier(rows: Array, multilabel: bool, half: float) -> _Classes:
    if rows.dtype.kind in "biu" and not multilabel and rows.shape[1] == 1:
        answers = rows[:, 0].astype(np.int64)
        size = max(int(answers.max(initial=1)) + 1, 2)
        return _Classes(np.arange(size), answers, np.eye(size)[np.clip(answers, 0, None)])
    rows = rows.astype(np.float64)
    if multilabel or rows.shape[1] == 1:
        ones = rows if half else expit(rows)
        predicted = (rows > half).astype(np.int64)
        if multilabel:
            return _Ranked([np.arange(2)] * rows.shape[1], predicted, ones, rows)
        return _Ranked(np.arange(2), predicted[:, 0], np.hstack([1 - ones, ones]), rows[:, 0])
    sums = rows.sum(axis=1)
    known = half > 0 and np.allclose(sums, 1, atol=1e-2)
    probabilities = rows / sums[:, None] if known else softmax(rows, axis=1)
    classes, predicted = np.arange(rows.shape[1]), rows.argmax(axis=1)
    if rows.shape[1] == 2:
        return _Ranked(classes, predicted, probabilities, rows[:, 1] - rows[:, 0])
    return _Classes(classes, predicted, probabilities)


def _dice(found: Array, labels: Array) -> float:
    """The mean Dice score of the classes from 1, over all samples; class 0 is the background."""
    kept = labels != IGNORED
    classes = np.unique(np.concatenate([labels[kept], found.reshape(labels.shape)[kept]]))
    scores = f1_score(
        labels[kept], found.reshape(labels.shape)[kept], labels=classes[classes > 0], average="macro"
    )
    return float(scores)


def _cosine(one: Array, other: Array) -> float:
    """The mean cosine of the samples' answers."""
    one, other = (array.reshape(len(array), -1).astype(np.float64) for array in (one, other))
    lengths = np.linalg.norm(one, axis=1) * np.linalg.norm(other, axis=1)
    dots = (one * other).sum(axis=1)
    return float(np.mean(np.divide(dots, lengths, out=np.ones_like(dots), where=lengths > 0)))


def _rows(labels: Array) -> Array:
    return np.arange(len(labels))


def _read(path: Any, name: str) -> Array:
    with np.load(path, allow_pickle=False) as file:
        return np.asarray(file[name])
