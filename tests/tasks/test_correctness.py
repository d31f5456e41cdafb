"""Layers 1 to 3 of correctness: every bound fails alone and its figures are reported."""

from __future__ import annotations

import math
from typing import Any

import pytest

from servegrid.checks.invariance import Invariance
from servegrid.checks.verdict import Correctness, Scores, judge, undecided
from servegrid.domain.arrays import TensorMatch
from servegrid.domain.tolerances import Metric, Tolerance, Tolerances

TOLERANCE = Tolerances(absolute=0.01, cosine=0.999)
METRIC = Metric(name="f1", threshold=0.8, drop={"fp32": 0.001, "fp16": 0.05})
ERROR = Metric(name="mel", better="lower", threshold=0.5, drop={"fp32": 0.001})


def tensor(excess: float, cosine: float, name: str = "y") -> TensorMatch:
    return TensorMatch(
        output=name, largest_difference=0.01 + excess, excess=excess, least_cosine=cosine, agreement=None
    )


def scores(metric: Metric = METRIC, **values: float) -> Scores:
    values = {"framework": 0.85, "served": 0.85, "shuffled": 0.1} | values
    drop = metric.lost(values["framework"], values["served"])
    return Scores(metric=metric.name, drop=drop, all={}, **values)


def moved(**kinds: TensorMatch) -> Invariance:
    return Invariance.model_validate({"neighbour": (tensor(0, 1),)} | {k: (t,) for k, t in kinds.items()})


GOOD = Correctness(
    tensors=(tensor(0, 0.999),), scores=scores(), invariance=moved(), clients=8, batches={1: 3, 8: 2}
)


def judged(
    change: dict[str, Any], precision: Any = "fp32", metric: Metric | None = METRIC
) -> tuple[str, ...]:
    return judge(GOOD.model_copy(update=change), TOLERANCE, metric, precision)


def test_values_just_on_their_bounds_pass() -> None:
    assert judged({"scores": scores(framework=0.8, served=0.8, shuffled=0.7999)}) == ()
    assert judged({"scores": scores(served=0.801)}, "fp16") == ()


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"tensors": (tensor(0.0023, 1),)}, ("tensor y: ", "0.0123", "0.01 ")),
        ({"tensors": (tensor(math.nan, 1),)}, ("tensor y: ", "nan", "0.01 ")),
        ({"tensors": (tensor(0, 0.99),)}, ("tensor y: cosine 0.990000", "0.999 ")),
        ({"tensors": (tensor(0, math.nan),)}, ("tensor y: cosine nan", "0.999 ")),
        ({"scores": scores(served=0.8495)}, ()),
        ({"scores": scores(served=0.8489)}, ("f1 drop of the served model: 0.0011", "0.001 ")),
        ({"scores": scores(served=0.9)}, ()),
        ({"scores": scores(framework=0.7999, served=0.8)}, ("f1 of the framework: 0.7999", "least 0.8 ")),
        ({"scores": scores(framework=0.8, served=0.7995)}, ("f1 of the served model: 0.7995", "0.8 ")),
        ({"scores": scores(shuffled=0.8)}, ("f1 of a baseline of shuffled answers: 0.8000", "0.8 ")),
        ({"invariance": moved(neighbour=tensor(0.01, 1))}, ("invariance: ", "neighbours", "0.02 ", "0.01 ")),
        (
            {"invariance": moved(size=tensor(0, 0.5))},
            ("invariance: ", "size of its", "cosine 0.500000"),
        ),
        ({"invariance": moved(instance=tensor(0, 0.5))}, ("invariance: ", "instances", "cosine 0.500000")),
    ],
)
def test_each_bound_fails_alone_and_its_figures_are_reported(
    change: dict[str, Any], named: tuple[str, ...]
) -> None:
    failures = judged(change)
    assert len(failures) == bool(named)
    assert [part for part in named if part not in failures[0]] == []


def test_a_fault_of_the_conversion_is_told_from_one_of_serving() -> None:
    """Both are named where the served model has the conversion's fault."""
    wrong = (tensor(0.5, 1),)
    both = judged({"converted": wrong, "tensors": wrong, "scores": scores(converted=0.7, served=0.7)})
    assert [("before it is served" in why) for why in both].count(True) == 3
    assert [why.split()[0] for why in both if "before it is served" in why] == ["the", "f1", "f1"]
    right = (tensor(0, 1),)
    served = judged({"converted": right, "tensors": wrong, "scores": scores(converted=0.85, served=0.7)})
    assert len(served) == 3
    assert not [why for why in served if "before it is served" in why]


def test_where_there_is_no_shuffled_baseline_that_is_named_and_does_not_fail() -> None:
    found = GOOD.model_copy(update={"scores": scores().model_copy(update={"shuffled": None})})
    assert judge(found, TOLERANCE, METRIC, "fp32") == ()
    assert "one label" in found.unproven
    assert GOOD.unproven == ""


STOCK = METRIC.model_copy(update={"output": "y"})


@pytest.mark.parametrize(
    ("metric", "change", "named"),
    [
        ({"made_up": True}, {}, ("f1", "--samples")),
        ({}, {"shuffled": None}, ("f1", "one label")),
        ({}, {"shuffled": 0.8}, ("f1", "0.8000", "0.8 ")),
        ({"threshold": None}, {"permuted": 0.85}, ("f1", "0.8500", "--threshold")),
        ({"threshold": None}, {"permuted": 0.05}, ("f1", "0.1000", "0.05 ")),
    ],
)
def test_a_stock_metric_that_cannot_tell_right_from_wrong_decides_nothing(
    metric: dict[str, Any], change: dict[str, Any], named: tuple[str, ...]
) -> None:
    stock = STOCK.model_copy(update=metric)
    found = GOOD.model_copy(update={"scores": scores().model_copy(update={"served": 0.0} | change)})
    assert found.scores is not None
    why = undecided(found.scores, stock)
    assert [part for part in named if part not in why] == []
    assert judge(found, TOLERANCE, stock, "fp32") == ()


def test_a_stock_metric_that_decides_is_judged_by_its_threshold_or_by_permuted_answers() -> None:
    free = STOCK.model_copy(update={"threshold": None})
    above = scores().model_copy(update={"permuted": 0.4})
    assert (undecided(scores(), STOCK), undecided(above, free), undecided(scores(), METRIC)) == ("", "", "")
    assert judged({"scores": above}, metric=free) == ()
    failures = judged({"scores": scores(served=0.4).model_copy(update={"permuted": 0.4})}, metric=free)
    starts = ("f1 of the served model: 0.4000", "f1 drop of the served model: 0.4500")
    assert [f.startswith(s) for f, s in zip(failures, starts, strict=True)] == [True, True]
    (failure,) = judged({"scores": scores(framework=0.7)}, metric=STOCK)
    assert failure.startswith("f1 of the framework: 0.7000")


def test_an_output_without_one_finite_value_proves_nothing() -> None:
    empty = tensor(0, 1).model_copy(update={"not_finite": 1.0})
    (failure,) = judged({"tensors": (empty,)})
    assert "y" in failure
    assert "finite" in failure
    assert judged({"tensors": (empty.model_copy(update={"not_finite": 0.9}),)}) == ()


def test_drop_is_bounded_by_precision() -> None:
    worse = {"scores": scores(framework=0.9, served=0.851)}
    assert judged(worse, "fp16") == ()
    (failure,) = judged(worse)
    assert failure.startswith("f1 drop of the served model: 0.0490, ")


def test_if_lower_is_better_every_bound_is_reversed() -> None:
    fine = {"scores": scores(ERROR, framework=0.4, served=0.4005, shuffled=0.9)}
    assert judged(fine, metric=ERROR) == ()
    assert judged({"scores": scores(ERROR, framework=0.4, served=0.3, shuffled=0.9)}, metric=ERROR) == ()
    (drop,) = judged({"scores": scores(ERROR, framework=0.4, served=0.42, shuffled=0.9)}, metric=ERROR)
    assert drop.startswith("mel drop of the served model: 0.0200, ")
    framework, served, blind = judged(
        {"scores": scores(ERROR, framework=0.6, served=0.6, shuffled=0.45)}, metric=ERROR
    )
    assert framework.startswith("mel of the framework: 0.6000, at most 0.5 ")
    assert served.startswith("mel of the served model: 0.6000, at most 0.5 ")
    assert blind.startswith("mel of a baseline of shuffled answers: 0.4500")


def test_metric_that_is_no_number_fails_for_threshold_and_drop() -> None:
    failures = judged({"scores": scores(served=math.nan)})
    starts = ("f1 of the served model: nan", "f1 drop of the served model: nan")
    assert [f.startswith(s) for f, s in zip(failures, starts, strict=True)] == [True, True]


def test_without_a_metric_tensors_and_invariance_are_judged() -> None:
    assert judged({"scores": None}, metric=None) == ()
    assert len(judged({"scores": None, "tensors": (tensor(1, 1),)}, metric=None)) == 1


def test_an_output_with_a_tolerance_of_its_own_is_judged_by_it() -> None:
    own = Tolerances(absolute=0.01, cosine=0.999, outputs={"y": Tolerance(absolute=0.01, cosine=0.9)})
    found = GOOD.model_copy(update={"tensors": (tensor(0, 0.95), tensor(0, 0.95, "z"))})
    (failure,) = judge(found, own, METRIC, "fp32")
    assert failure.startswith("tensor z: cosine 0.95")


def test_every_failure_of_every_output_is_reported() -> None:
    failures = judged({"tensors": (tensor(0, 1, "fine"), tensor(1, 0.5, "y0"), tensor(math.inf, -1, "y1"))})
    starts = (
        "tensor y0: 1.01 off",
        "tensor y0: cosine 0.500000",
        "tensor y1: inf off",
        "tensor y1: cosine -1.000000",
    )
    assert [f.startswith(s) for f, s in zip(failures, starts, strict=True)] == [True] * 4
