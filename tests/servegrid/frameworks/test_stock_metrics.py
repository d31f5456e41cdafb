"""Stock metrics of a framework's outputs are those that scikit-learn's functions compute of them."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy.special import expit, softmax
from sklearn import metrics as sk

from servegrid.frameworks.fields import StockScoreFields
from servegrid.frameworks.stock_metrics import score, stock_metric
from servegrid.store.job import Job

RNG = np.random.default_rng(0)
CLASSES = RNG.integers(0, 7, 120)
LOGITS = (RNG.normal(size=(120, 7)) + 2 * np.eye(7)[CLASSES]).astype(np.float32)
BITS = RNG.integers(0, 2, 120)
BIT_LOGITS = (RNG.normal(size=120) + 2 * BITS - 1).astype(np.float32)
PAIRS = np.stack([-BIT_LOGITS, 50 + BIT_LOGITS * 20], axis=1)  # a softmax of them is often exactly 1
MANY = RNG.integers(0, 2, (120, 4))
MANY_LOGITS = (RNG.normal(size=(120, 4)) + 2 * MANY - 1).astype(np.float32)
VALUES = RNG.normal(size=(120, 2))
FOUND = (VALUES + RNG.normal(size=(120, 2)) / 4).astype(np.float32)
MASKS = RNG.integers(0, 3, (5, 8, 6))
MASK_LOGITS = (RNG.normal(size=(5, 3, 8, 6)) + 2 * np.moveaxis(np.eye(3)[MASKS], -1, 1)).astype(np.float32)
TOKENS = np.where(RNG.random((9, 12)) < 0.2, -100, RNG.integers(0, 4, (9, 12)))
TOKEN_LOGITS = (RNG.normal(size=(9, 12, 4)) + 2 * np.eye(4)[np.clip(TOKENS, 0, None)]).astype(np.float32)
KNOWN = TOKENS != -100

Expected = Callable[[], float]


@pytest.mark.parametrize(
    ("name", "answers", "labels", "expected"),
    [
        ("accuracy", LOGITS, CLASSES, lambda: sk.accuracy_score(CLASSES, LOGITS.argmax(1))),
        ("accuracy", CLASSES[::-1], CLASSES, lambda: sk.accuracy_score(CLASSES, CLASSES[::-1])),
        ("accuracy", LOGITS, np.eye(7, dtype=np.float32)[CLASSES],
         lambda: sk.accuracy_score(CLASSES, LOGITS.argmax(1))),
        ("f1_macro", LOGITS, CLASSES, lambda: sk.f1_score(CLASSES, LOGITS.argmax(1), average="macro")),
        ("roc_auc_ovr", LOGITS, CLASSES,
         lambda: sk.roc_auc_score(CLASSES, _softmax(LOGITS), multi_class="ovr")),
        ("neg_log_loss", softmax(LOGITS, axis=1), CLASSES, lambda: -sk.log_loss(CLASSES, _softmax(LOGITS))),
        ("neg_log_loss", LOGITS, CLASSES, lambda: -sk.log_loss(CLASSES, _softmax(LOGITS))),
        ("top5", LOGITS, CLASSES, lambda: sk.top_k_accuracy_score(CLASSES, LOGITS, k=5)),
        ("f1", BIT_LOGITS, BITS, lambda: sk.f1_score(BITS, BIT_LOGITS > 0)),
        ("f1", expit(BIT_LOGITS)[:, None], BITS, lambda: sk.f1_score(BITS, BIT_LOGITS > 0)),
        ("roc_auc", BIT_LOGITS[:, None], BITS, lambda: sk.roc_auc_score(BITS, BIT_LOGITS)),
        ("roc_auc", PAIRS, BITS, lambda: sk.roc_auc_score(BITS, PAIRS[:, 1] - PAIRS[:, 0])),
        ("average_precision", PAIRS, BITS, lambda: sk.average_precision_score(BITS, BIT_LOGITS)),
        ("f1_macro", MANY_LOGITS, MANY, lambda: sk.f1_score(MANY, MANY_LOGITS > 0, average="macro")),
        ("roc_auc", MANY_LOGITS, MANY, lambda: sk.roc_auc_score(MANY, MANY_LOGITS)),
        ("average_precision", MANY_LOGITS, MANY, lambda: sk.average_precision_score(MANY, MANY_LOGITS)),
        ("neg_mean_absolute_error", FOUND, VALUES, lambda: -sk.mean_absolute_error(VALUES, FOUND)),
        ("neg_root_mean_squared_error", FOUND[:, :1], VALUES[:, 0],
         lambda: -sk.root_mean_squared_error(VALUES[:, 0], FOUND[:, 0])),
        ("r2", FOUND, VALUES, lambda: sk.r2_score(VALUES, FOUND)),
        ("dice", MASK_LOGITS, MASKS,
         lambda: sk.f1_score(MASKS.ravel(), MASK_LOGITS.argmax(1).ravel(), labels=[1, 2], average="macro")),
        ("accuracy", MASK_LOGITS, MASKS, lambda: float((MASK_LOGITS.argmax(1) == MASKS).mean())),
        ("balanced_accuracy", TOKEN_LOGITS, TOKENS,
         lambda: sk.balanced_accuracy_score(TOKENS[KNOWN], TOKEN_LOGITS.argmax(-1)[KNOWN])),
    ],
)  # fmt: skip
def test_a_metric_of_labels_is_scikit_learns(
    name: str, answers: Any, labels: Any, expected: Expected
) -> None:
    assert stock_metric(name, answers, labels)(answers) == pytest.approx(expected(), abs=5e-5)


def test_agreement_and_cosine_compare_with_the_framework() -> None:
    moved = LOGITS.copy()
    moved[:12] = np.roll(moved[:12], 1, axis=1)
    assert stock_metric("agreement", LOGITS, None)(LOGITS) == 1
    assert stock_metric("agreement", LOGITS, None)(moved) == pytest.approx(0.9)
    assert stock_metric("agreement", TOKEN_LOGITS, None)(TOKEN_LOGITS * 2) == 1
    assert stock_metric("cosine", LOGITS, None)(3 * LOGITS) == pytest.approx(1)
    assert stock_metric("cosine", LOGITS, None)(-LOGITS) == pytest.approx(-1)


def test_permuted_answers_of_a_model_that_knows_its_labels_score_less(tmp_path: Path) -> None:
    np.savez(tmp_path / "labels.npz", labels=CLASSES)
    for name, array in {"framework": LOGITS, "served": LOGITS[::-1]}.items():
        np.savez(tmp_path / f"{name}.npz", y=array)
    fields = StockScoreFields(
        metric="accuracy", output="y", predictions=("framework", "served"), permuted=True
    )
    inputs = {name: tmp_path / f"{name}.npz" for name in ("labels", "framework", "served")}
    score(Job(step="stock_score", fields=fields, inputs=inputs, plugin=tmp_path, output=tmp_path))
    found = {
        name: value["accuracy"] for name, value in json.loads((tmp_path / "metrics.json").read_text()).items()
    }
    assert found["framework"] == pytest.approx(sk.accuracy_score(CLASSES, LOGITS.argmax(1)))
    assert found["served"] == pytest.approx(sk.accuracy_score(CLASSES, LOGITS[::-1].argmax(1)))
    assert 1 / 7 < found["permuted"] < 0.35


def test_a_metric_of_labels_without_labels_names_the_option() -> None:
    with pytest.raises(ValueError, match="--labels"):
        stock_metric("accuracy", LOGITS, None)


def _softmax(logits: Any) -> Any:
    return softmax(logits.astype(np.float64), axis=1)
