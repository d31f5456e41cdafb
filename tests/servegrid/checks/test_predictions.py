"""Answers of a served model: their order, and whether neighbours change them."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from servegrid.checks.predictions import neighbours, predict
from servegrid.domain.errors import StepError
from servegrid.domain.values import Endpoint

TIMEOUT_S = 60.0


@pytest.fixture(scope="module")
def values(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """19 samples of 3 values for the float models."""
    folder = tmp_path_factory.mktemp("values")
    x = np.random.default_rng(0).random((19, 3), dtype=np.float32)
    np.savez(folder / "samples.npz", allow_pickle=False, **{"x/x": x})
    return folder


def requests(server: Any, model: str, expected: int) -> int:
    """How many requests the server has answered, once they are as many as expected: it counts one a moment
    after its answer."""
    deadline = time.monotonic() + 5.0
    while (found := server.statistics(model).inference_stats.success.count) < expected:
        if time.monotonic() > deadline:
            break
        time.sleep(0.02)
    return int(found)


def moved(endpoint: Endpoint, samples: Path, max_batch: int) -> float:
    """The largest change of a value with what shares its batch."""
    alone, together = neighbours(endpoint, samples, max_batch, TIMEOUT_S)
    return float(np.nan_to_num(np.abs(alone["y"] - together["y"]), nan=np.inf).max())


@pytest.fixture(scope="module")
def floats(interface: Any) -> Any:
    return interface([("x", "float32", (-1, 3))], [("y", "float32", (-1, 3))])


def test_requests_grow_where_the_samples_are_many(
    server: Any, interface: Any, onnx_artifact: Any, samples: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    io = interface([("x", "int64", (-1, -1))], [("y", "int64", (-1, -1))])
    model = server.load("many", onnx_artifact(io, [("Identity", ["x"], ["y"], {})]), io)
    monkeypatch.setattr("servegrid.checks.predictions.SMALL_REQUESTS_UP_TO", 8)
    found = predict(server.endpoint(model), samples, 8, TIMEOUT_S)
    np.testing.assert_array_equal(found["y"], np.arange(37 * 64).reshape(37, 64))
    assert requests(server, model, 9) == 9  # four of one sample, four of eight, and the last


def test_answers_come_in_the_order_of_the_samples(server: Any, identity: str, samples: Path) -> None:
    before = requests(server, identity, 0)
    answers = predict(server.endpoint(identity), samples, max_batch=4, timeout_s=TIMEOUT_S)
    with np.load(samples / "samples.npz") as file:
        np.testing.assert_array_equal(answers["y"], file["x/x"])
    expected = before + 16  # of 1, 2, 3 and 4 samples in turn, 37 in all
    assert requests(server, identity, expected) == expected


def test_requests_are_no_larger_than_the_largest_batch(
    server: Any, interface: Any, onnx_artifact: Any, floats: Any, values: Path
) -> None:
    artifact = onnx_artifact(floats, [("Neg", ["x"], ["y"], {})])
    model = server.load("pairs", artifact, floats, max_batch_size=2)
    answers = predict(server.endpoint(model), values, max_batch=2, timeout_s=TIMEOUT_S)
    with np.load(values / "samples.npz") as file:
        np.testing.assert_array_equal(answers["y"], -file["x/x"])
    with pytest.raises(StepError, match="batch-size must be <= 2"):
        predict(server.endpoint(model), values, max_batch=4, timeout_s=TIMEOUT_S)


@pytest.mark.parametrize("max_batch", [1, 8])
def test_identity_does_not_depend_on_its_neighbours(
    server: Any, identity: str, samples: Path, max_batch: int
) -> None:
    assert moved(server.endpoint(identity), samples, max_batch) == 0.0


def test_a_model_that_depends_on_its_neighbours_is_found(
    server: Any, onnx_artifact: Any, floats: Any, values: Path
) -> None:
    nodes = [("ReduceMean", ["x"], ["m"], {"axes": [0]}), ("Sub", ["x", "m"], ["y"], {})]
    model = server.load("mean", onnx_artifact(floats, nodes), floats)
    assert moved(server.endpoint(model), values, max_batch=8) > 0.05


def test_a_model_that_depends_on_its_place_in_the_batch_is_found(
    server: Any, onnx_artifact: Any, floats: Any, values: Path
) -> None:
    nodes = [("CumSum", ["x", "first"], ["y"], {})]
    artifact = onnx_artifact(floats, nodes, {"first": np.array(0)})
    model = server.load("sums", artifact, floats)
    assert moved(server.endpoint(model), values, max_batch=8) > 0.05


def test_nan_in_a_shared_batch_is_no_agreement(
    server: Any, onnx_artifact: Any, floats: Any, values: Path
) -> None:
    # sqrt of minus the spread in the batch: 0 alone, NaN in a shared batch.
    nodes = [
        ("ReduceMean", ["x"], ["m"], {"axes": [0]}),
        ("Sub", ["x", "m"], ["d"], {}),
        ("Abs", ["d"], ["a"], {}),
        ("Neg", ["a"], ["n"], {}),
        ("Sqrt", ["n"], ["y"], {}),
    ]
    model = server.load("spread", onnx_artifact(floats, nodes), floats)
    assert moved(server.endpoint(model), values, max_batch=8) == np.inf


def test_tensors_with_no_axis_but_the_batch_come_and_go_as_they_are(
    server: Any, interface: Any, onnx_artifact: Any, tmp_path: Path
) -> None:
    io = interface([("x", "float32", (-1, 3)), ("s", "float32", (-1,))], [("y", "float32", (-1,))])
    nodes = [("ReduceMax", ["x"], ["m"], {"axes": [1], "keepdims": 0}), ("Mul", ["m", "s"], ["y"], {})]
    server.load("flat", onnx_artifact(io, nodes), io)
    x, s = np.random.default_rng(0).random((2, 19, 3), dtype=np.float32)
    np.savez(tmp_path / "samples.npz", allow_pickle=False, **{"x/x": x, "x/s": s[:, 0]})
    answers = predict(server.endpoint("flat"), tmp_path, max_batch=8, timeout_s=TIMEOUT_S)
    np.testing.assert_allclose(answers["y"], x.max(axis=1) * s[:, 0], rtol=1e-6)
    assert moved(server.endpoint("flat"), tmp_path, 8) == 0


def test_server_without_batching_gets_batches_of_its_size(
    server: Any, interface: Any, onnx_artifact: Any, tmp_path: Path
) -> None:
    io = interface([("x", "float32", (4, 3))], [("y", "float32", (4, 3))])
    artifact = onnx_artifact(io, [("Relu", ["x"], ["y"], {})])
    server.load("fours", artifact, io, batching="disabled", max_batch_size=0)
    x = np.random.default_rng(0).normal(size=(12, 3)).astype(np.float32)
    np.savez(tmp_path / "samples.npz", allow_pickle=False, **{"x/x": x})
    before = requests(server, "fours", 0)
    answers = predict(server.endpoint("fours"), tmp_path, max_batch=0, timeout_s=TIMEOUT_S)
    assert requests(server, "fours", before + 3) == before + 3
    np.testing.assert_array_equal(answers["y"], np.maximum(x, 0))
    assert moved(server.endpoint("fours"), tmp_path, 0) == 0
