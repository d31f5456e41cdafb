"""The shuffled baseline: whose answer a sample gets."""

from __future__ import annotations

import numpy as np
import pytest

from servegrid.checks.shuffled import partners

CLASSES = np.repeat(np.arange(10), 30)


def equal_pairs(labels: np.ndarray) -> int:
    """How many samples get the answer of one with the same label."""
    found = partners({"y": labels})
    assert found is not None
    assert sorted(found) == list(range(len(labels)))
    return int((labels[found] == labels).reshape(len(labels), -1).all(axis=1).sum())


@pytest.mark.parametrize(
    "labels",
    [
        CLASSES,
        np.eye(10, dtype=np.float32)[CLASSES],
        np.tile(np.arange(100), 2),
        np.repeat(np.arange(100), 2),
        np.array([0, 1]),
        np.array([1, 0, 2]),
        np.array(["cat"] * 5 + ["dog"] * 5),
        np.arange(7.0),
    ],
)
def test_labels_of_a_pair_differ(labels: np.ndarray) -> None:
    assert equal_pairs(labels) == 0


def test_where_most_samples_have_one_label_as_few_pairs_as_possible_are_equal() -> None:
    assert equal_pairs(np.array([0] * 7 + [1, 2, 3])) == 4


def test_numbers_of_a_pair_are_far_apart() -> None:
    labels = np.linspace(0.0, 1.0, 100)
    found = partners({"y": labels})
    assert found is not None
    assert np.abs(labels[found] - labels).min() > 0.45


@pytest.mark.parametrize("labels", [np.array([3.0]), np.full((9, 2), 4), np.full(3, np.nan)])
def test_one_label_has_no_baseline(labels: np.ndarray) -> None:
    assert partners({"y": labels}) is None


def test_all_labels_of_a_sample_count() -> None:
    found = partners({"a": np.zeros(4), "b": np.array([0, 0, 1, 1])})
    assert found is not None
    assert set(found[:2]) == {2, 3}
