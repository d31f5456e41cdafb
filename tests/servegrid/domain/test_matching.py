"""Layer 1 of correctness: comparison of two sets of outputs within bounds."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from servegrid.domain.arrays import (
    TensorMatch,
    alike,
    concatenate,
    concatenate_answers,
    match,
    without_padding,
)
from servegrid.domain.tolerances import Tolerance, Tolerances
from servegrid.domain.values import Tensor

TOLERANCE = Tolerances(absolute=0.01, cosine=0.999)


def compare(
    have: Any, want: Any, tolerances: Tolerances = TOLERANCE, shape: tuple[int, ...] | None = None
) -> TensorMatch:
    """Match one output `y`, whose axes are fixed but for the batch unless a shape says otherwise."""
    have, want = np.asarray(have), np.asarray(want)
    tensor = Tensor(name="y", dtype=str(want.dtype), shape=shape or (-1, *want.shape[1:]))
    (found,) = match((tensor,), {"y": have}, {"y": want}, tolerances)
    return found


def test_equal_outputs_do_not_differ() -> None:
    values = np.arange(12, dtype=np.float32).reshape(3, 2, 2)
    found = compare(values, values.copy())
    assert (found.output, found.largest_difference, found.excess) == ("y", 0, 0)
    assert found.least_cosine == pytest.approx(1)
    assert found.failures(TOLERANCE) == []


def test_largest_difference_is_of_any_value_either_way() -> None:
    want = np.zeros((2, 3), dtype=np.float32)
    have = want.copy()
    have[0, 1], have[1, 2] = 0.5, -0.75
    found = compare(have, want)
    assert (found.largest_difference, found.excess) == (0.75, pytest.approx(0.74))


def test_relative_part_grows_with_the_expected_value() -> None:
    tolerance = Tolerances(absolute=0.01, relative=0.1, cosine=0.5)
    assert compare([[10.0, 0.0]], [[9.1, 0.0]], tolerance).excess == 0  # 0.9 off, 0.01 + 0.91 allowed
    found = compare([[10.0, 0.5]], [[9.1, 0.4]], tolerance)  # the second is 0.1 off, 0.05 allowed
    assert found.excess == pytest.approx(0.05)
    assert found.failures(tolerance) == ["y: 0.9 off, 0.01 + 0.1 x the value allowed"]


def test_least_cosine_is_of_the_worst_sample() -> None:
    want = np.array([[1.0, 0.0], [1.0, 0.0]])
    have = np.array([[5.0, 0.0], [1.0, 1.0]])
    assert compare(have, want).least_cosine == pytest.approx(math.sqrt(0.5))
    assert compare(-want, want).least_cosine == pytest.approx(-1)


def test_half_precision_is_compared_without_overflow() -> None:
    want = np.full((1, 100), 60000, dtype=np.float16)
    found = compare(want, want)
    assert (found.largest_difference, found.least_cosine) == (0, pytest.approx(1))


def test_outputs_of_zeros_agree_and_zeros_in_place_of_values_do_not() -> None:
    zeros = np.zeros((2, 3))
    assert compare(zeros, zeros).least_cosine == 1
    assert compare(zeros, np.full((2, 3), 0.001)).least_cosine == 0
    nothing = np.zeros((2, 0))
    assert compare(nothing, nothing).failures(TOLERANCE) == []


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
def test_one_nan_or_infinity_makes_an_output_infinitely_different(bad: float) -> None:
    have = np.ones((4, 4), dtype=np.float32)
    have[3, 3] = bad
    found = compare(have, np.ones((4, 4)))
    assert (found.largest_difference, found.excess, found.least_cosine) == (math.inf, math.inf, -1)
    assert len(found.failures(TOLERANCE)) == 2


def test_reference_that_is_nan_is_never_met() -> None:
    assert compare(np.ones((1, 2)), [[1.0, math.nan]]).failures(TOLERANCE)


@pytest.mark.parametrize("shape", [(3, 6), (4, 5), (4, 7), (4, 3, 2), (4, 1, 2, 3)])
def test_output_of_another_shape_is_infinitely_different(shape: tuple[int, ...]) -> None:
    assert compare(np.ones(shape), np.ones((4, 6))).excess == math.inf
    integers = compare(np.ones(shape, np.int64), np.ones((4, 6), np.int64))
    assert integers.failures(TOLERANCE) == ["y: 0.0000 of its values agree, 1 wanted"]


def test_integers_are_judged_by_the_share_that_agrees() -> None:
    found = compare(np.array([[0, 255, 7, 9]], np.uint8), np.array([[255, 255, 7, 9]], np.uint8))
    assert (found.agreement, found.least_cosine) == (0.75, None)
    assert found.largest_difference == 255
    assert found.failures(Tolerance(absolute=1, cosine=1, agreement=0.75)) == []
    assert found.failures(TOLERANCE) == ["y: 0.7500 of its values agree, 1 wanted"]


def test_an_output_may_have_a_tolerance_of_its_own() -> None:
    tolerances = Tolerances(absolute=0.01, cosine=0.999, outputs={"y": Tolerance(absolute=1.0, cosine=0.5)})
    assert compare([[2.0, 1.0]], [[1.1, 1.0]], tolerances).excess == 0
    assert compare([[2.0, 1.0]], [[1.1, 1.0]]).excess == pytest.approx(0.89)


def test_a_free_axis_may_be_longer_when_the_rest_is_zero() -> None:
    short, long = np.ones((1, 2, 3)), np.zeros((1, 2, 5))
    long[..., :3] = 1
    assert compare(long, short, shape=(-1, 2, -1)).largest_difference == 0
    long[..., 4] = 0.5
    assert compare(short, long, shape=(-1, 2, -1)).largest_difference == 0.5
    assert compare(short, long).excess == math.inf


def test_batches_of_different_lengths_are_joined_with_zeros() -> None:
    joined = concatenate([np.ones((1, 2)), np.full((2, 3), 2.0)])
    np.testing.assert_array_equal(joined, [[1, 1, 0], [2, 2, 2], [2, 2, 2]])
    one, other = alike(np.ones((1, 1, 3)), np.ones((1, 2, 1)))
    assert one.shape == other.shape == (1, 2, 3)
    assert (one.sum(), other.sum()) == (3, 2)


HUGE = 2**53


@pytest.mark.parametrize("dtype", ["int64", "uint64"])
def test_integers_above_2_to_the_53_are_compared_as_integers(dtype: str) -> None:
    want = np.array([[HUGE, HUGE + 10**6]], dtype)
    assert compare(want, want.copy()).agreement == 1
    for off in (1, 500):
        found = compare(want + np.array(off, dtype), want)
        assert (found.agreement, found.largest_difference) == (0, off)


def test_the_ends_of_the_integers_do_not_wrap_round() -> None:
    want = np.array([[np.iinfo(np.int64).min, 2**63 - 1]])
    assert compare(want[:, ::-1].copy(), want).largest_difference == pytest.approx(2.0**64)
    unsigned = np.array([[0, 2**64 - 1]], np.uint64)
    assert compare(unsigned, unsigned.copy()).agreement == 1
    assert compare(unsigned[:, ::-1].copy(), unsigned).agreement == 0


def test_booleans_agree_or_do_not_whatever_the_absolute_bound() -> None:
    loose = Tolerances(absolute=1.0, cosine=0.1)
    want = np.array([[True, False, True, True]])
    assert compare(want, want.copy(), loose).failures(loose) == []
    (failure,) = compare(~want, want, loose).failures(loose)
    assert "0.0000" in failure


def test_numbers_whose_squares_leave_the_range_have_a_cosine() -> None:
    tolerance = Tolerances(absolute=1e-6, relative=1e-3, cosine=0.999)
    for scale in (1e200, 1e-200):
        want = np.array([[1.0, 2.0], [3.0, -4.0]]) * scale
        assert compare(want, want.copy(), tolerance).failures(tolerance) == []
        assert compare(-want, want, tolerance).least_cosine == pytest.approx(-1)
    assert compare([[-1.7e308]], [[1.7e308]], tolerance).failures(tolerance)


def test_values_that_are_not_finite_are_equal_at_equal_places_and_counted() -> None:
    want = np.array([[1.0, -math.inf, math.nan, 2.0]])
    found = compare(want, want.copy())
    assert (found.failures(TOLERANCE), found.largest_difference, found.not_finite) == ([], 0, 0.5)
    for other in (math.inf, math.nan, 0.0):
        have = want.copy()
        have[0, 1] = other
        assert compare(have, want).failures(TOLERANCE)


@pytest.mark.parametrize("dtype", ["int64", "int32", "int8", "uint8", "uint64", "bool"])
def test_a_missing_integer_of_a_free_axis_is_no_zero(dtype: str) -> None:
    want = np.array([[1, 1, 0, 0]], dtype)
    found = compare(want[:, :2], want, shape=(-1, -1))
    assert found.agreement == 0.5
    assert compare(want, want[:, :2], shape=(-1, -1)).agreement == 0.5


@pytest.mark.parametrize("dtype", ["int64", "int32", "int8", "uint8", "uint64", "bool"])
def test_batches_of_integers_keep_where_their_answers_end(dtype: str) -> None:
    short, long = np.array([[1]], dtype), np.array([[1, 0, 0]], dtype)
    joined = concatenate_answers([short, long])
    assert compare(joined, joined.copy(), shape=(-1, -1)).agreement == 1
    assert compare(joined, concatenate_answers([long, long]), shape=(-1, -1)).agreement == pytest.approx(
        4 / 6
    )
    assert compare(joined[:1], short, shape=(-1, -1)).agreement == 1
    tensor = Tensor.model_validate({"name": "y", "dtype": dtype, "shape": (-1, -1)})
    metric = without_padding(tensor, joined)
    assert (metric.dtype, metric.tolist()) == (np.dtype(dtype), [[1, 0, 0], [1, 0, 0]])


def test_the_highest_value_of_a_type_is_an_answer_like_any_other() -> None:
    want = np.array([[255, 0, 255]], np.uint8)
    tensor = Tensor(name="y", dtype="uint8", shape=(-1, -1))
    assert without_padding(tensor, want) is want
    assert compare(want, want.copy(), shape=(-1, -1)).agreement == 1
    assert compare(want, np.zeros_like(want), shape=(-1, -1)).agreement == pytest.approx(1 / 3)
