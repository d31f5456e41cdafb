"""Made input data: tensors of the samples' shapes and types, of values that the model's data may have."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from servegrid.servers.samples import made

X = np.random.default_rng(1)
SAMPLES = {
    "float16": X.uniform(-6e4, 6e4, (5, 2)).astype(np.float16),
    "float32": X.normal(size=(7, 3)).astype(np.float32),
    "int32": X.integers(3, 9, (9, 4), np.int32),
    "int64": np.array([[np.iinfo(np.int64).min], [np.iinfo(np.int64).max]]),
    "uint64": np.array([[0], [np.iinfo(np.uint64).max]], np.uint64),
    "bool": X.integers(0, 2, (20, 4)).astype(bool),
    "with infinities": np.array([[0.5, -np.inf], [0.25, np.nan]], np.float32),
}


@pytest.mark.parametrize("samples", SAMPLES.values(), ids=SAMPLES)
def test_random_values_lie_between_the_least_and_the_largest_sample(samples: Any) -> None:
    found = made("random", samples)
    assert (found.shape, found.dtype) == (samples.shape, samples.dtype)
    finite = samples[np.isfinite(samples)]
    assert finite.min() <= found.min() and found.max() <= finite.max()
    assert len(np.unique(found)) > 1
    np.testing.assert_array_equal(found, made("random", samples))


@pytest.mark.parametrize("samples", SAMPLES.values(), ids=SAMPLES)
def test_zeros_have_shape_and_type_of_the_samples(samples: Any) -> None:
    found = made("zero", samples)
    assert (found.shape, found.dtype, found.any()) == (samples.shape, samples.dtype, False)


def test_text_is_never_replaced_and_samples_stay_samples() -> None:
    text = np.array([b"one", b"two"], object)
    assert made("random", text) is text and made("zero", text) is text
    assert made("samples", SAMPLES["int32"]) is SAMPLES["int32"]
