"""Layers 1 to 3 of correctness: what is compared, and every bound with its figures."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from tasks.core.spec import Metric, Tolerance
from tasks.correctness import Correctness, TensorMatch, judge, match

TOLERANCE = Tolerance(absolute=0.01, cosine=0.999)
METRIC = Metric(name="f1", threshold=0.8, drop={"fp32": 0.001, "fp16": 0.05})
GOOD = Correctness(
    tensors=(TensorMatch(output="y", largest_difference=0.01, least_cosine=0.999),),
    metric="f1",
    framework=0.85,
    served=0.85,
    blind=0.1,
    metrics={},
    invariance=0.01,
    failures=(),
)


def tensor(difference: float, cosine: float, name: str = "y") -> TensorMatch:
    return TensorMatch(output=name, largest_difference=difference, least_cosine=cosine)


# Tensors -----------------------------------------------------------------------------------------------


def test_equal_outputs_do_not_differ() -> None:
    values = np.arange(12, dtype=np.float32).reshape(3, 2, 2)
    found = match("y", values, values.copy())
    assert found.output == "y"
    assert found.largest_difference == 0
    assert found.least_cosine == pytest.approx(1)


def test_largest_difference_is_of_any_value_either_way() -> None:
    want = np.zeros((2, 3), dtype=np.float32)
    have = want.copy()
    have[0, 1], have[1, 2] = 0.5, -0.75
    assert match("y", have, want).largest_difference == 0.75


def test_least_cosine_is_of_the_worst_sample() -> None:
    want = np.array([[1.0, 0.0], [1.0, 0.0]])
    have = np.array([[5.0, 0.0], [1.0, 1.0]])
    assert match("y", have, want).least_cosine == pytest.approx(math.sqrt(0.5))
    assert match("y", -want, want).least_cosine == pytest.approx(-1)


def test_half_precision_is_compared_without_overflow() -> None:
    want = np.full((1, 100), 60000, dtype=np.float16)
    found = match("y", want, want)
    assert (found.largest_difference, found.least_cosine) == (0, pytest.approx(1))


def test_integer_and_boolean_outputs_are_compared() -> None:
    assert (
        match("y", np.array([[0, 255]], np.uint8), np.array([[255, 0]], np.uint8)).largest_difference == 255
    )
    assert match("y", np.array([True, False]), np.array([True, True])).largest_difference == 1


def test_outputs_of_zeros_on_both_sides_agree() -> None:
    zeros = np.zeros((2, 3))
    assert match("y", zeros, zeros).least_cosine == 1


def test_zeros_in_place_of_an_answer_do_not_point_the_same_way() -> None:
    assert match("y", np.zeros((2, 3)), np.full((2, 3), 0.001)).least_cosine < 0.5


def test_outputs_without_values_agree() -> None:
    nothing = np.zeros((2, 0))
    assert match("y", nothing, nothing) == tensor(0, 1)


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
def test_one_value_that_is_no_number_makes_an_output_infinitely_different(bad: float) -> None:
    have = np.ones((4, 4), dtype=np.float32)
    have[3, 3] = bad
    assert match("y", have, np.ones((4, 4))) == tensor(math.inf, -1)


@pytest.mark.parametrize("shape", [(3, 6), (4, 5), (4, 7)])
def test_output_of_another_size_is_infinitely_different(shape: tuple[int, ...]) -> None:
    assert match("y", np.ones(shape), np.ones((4, 6))) == tensor(math.inf, -1)


@pytest.mark.parametrize("shape", [(4, 6), (4, 3, 2), (4, 1, 2, 3)])
def test_output_of_another_shape_is_infinitely_different(shape: tuple[int, ...]) -> None:
    assert match("y", np.ones(shape), np.ones((4, 2, 3))) == tensor(math.inf, -1)


def test_reference_that_is_no_number_is_never_met() -> None:
    found = match("y", np.ones((1, 2)), np.array([[1.0, math.nan]]))
    assert judge(GOOD.model_copy(update={"tensors": (found,)}), TOLERANCE, METRIC, "fp32")


# Bounds ------------------------------------------------------------------------------------------------


def test_values_just_on_their_bounds_pass() -> None:
    edge = GOOD.model_copy(update={"framework": 0.8, "served": 0.8, "blind": 0.7999})
    assert judge(edge, TOLERANCE, METRIC, "fp32") == ()
    fp16 = GOOD.model_copy(update={"framework": 0.85, "served": 0.801})
    assert judge(fp16, TOLERANCE, METRIC, "fp16") == ()


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"tensors": (tensor(0.0123, 1),)}, ("tensor y: ", "0.0123", "0.01 ")),
        ({"tensors": (tensor(math.nan, 1),)}, ("tensor y: ", "nan", "0.01 ")),
        ({"tensors": (tensor(0, 0.99),)}, ("tensor y: cosine 0.990000", "0.999 ")),
        ({"tensors": (tensor(0, math.nan),)}, ("tensor y: cosine nan", "0.999 ")),
        ({"served": 0.8495}, ()),
        ({"served": 0.8489}, ("f1 drop: 0.0011", "0.001 ", "fp32")),
        ({"served": 0.9}, ()),
        ({"framework": 0.7999, "served": 0.8}, ("f1 of the framework: 0.7999", "0.8 ")),
        ({"framework": 0.8, "served": 0.7995}, ("f1 of the served model: 0.7995", "0.8 ")),
        ({"blind": 0.8}, ("f1 of an input-blind baseline: 0.8000", "0.8 ")),
        ({"blind": math.nan}, ("f1 of an input-blind baseline: nan", "0.8 ")),
        ({"invariance": 0.02}, ("invariance", "0.02 ", "0.01 ")),
        ({"invariance": math.nan}, ("invariance", "nan", "0.01 ")),
    ],
)
def test_each_bound_is_judged_alone_and_told_with_its_figures(
    change: dict[str, Any], said: tuple[str, ...]
) -> None:
    failures = judge(GOOD.model_copy(update=change), TOLERANCE, METRIC, "fp32")
    assert len(failures) == bool(said)
    assert [part for part in said if part not in failures[0]] == []


def test_drop_is_bounded_by_precision() -> None:
    worse = GOOD.model_copy(update={"framework": 0.9, "served": 0.851})
    assert judge(worse, TOLERANCE, METRIC, "fp16") == ()
    (failure,) = judge(worse, TOLERANCE, METRIC, "fp32")
    assert failure.startswith("f1 drop: 0.0490, ")


def test_metric_that_is_no_number_fails_for_threshold_and_drop() -> None:
    failures = judge(GOOD.model_copy(update={"served": math.nan}), TOLERANCE, METRIC, "fp32")
    starts = ("f1 of the served model: nan", "f1 drop: nan")
    assert [f.startswith(s) for f, s in zip(failures, starts, strict=True)] == [True, True]


def test_every_failure_of_every_output_is_told() -> None:
    tensors = (tensor(0, 1, "fine"), tensor(1, 0.5, "y0"), tensor(math.inf, -1, "y1"))
    failures = judge(GOOD.model_copy(update={"tensors": tensors}), TOLERANCE, METRIC, "fp32")
    starts = (
        "tensor y0: 1 off",
        "tensor y0: cosine 0.500000",
        "tensor y1: inf off",
        "tensor y1: cosine -1.000000",
    )
    assert [f.startswith(s) for f, s in zip(failures, starts, strict=True)] == [True] * 4
