"""The one rule for a change, on figures that are given."""

from __future__ import annotations

import math

import pytest

from servegrid.regression.verdict import Figures, judge


@pytest.mark.parametrize("metric", ["throughput", "p50_ms"])
def test_two_pairs_that_agree_on_nothing_say_nothing(metric: str) -> None:
    """Their interval goes down to -100 %, of which a rate's loss has no bound."""
    figures = Figures(point="x", metric=metric, a=(1000.0, 1000.0), b=(10.0, 5000.0), in_pairs=True)
    (judged,) = judge([figures], confidence=0.9999)
    assert judged.interval is not None and judged.interval.low == -1.0
    assert judged.change == "unclear"
    assert judged.interval.floor == math.inf


def test_a_point_limited_by_the_client_is_never_the_same() -> None:
    same, worse = (100.0, 101.0, 99.0), (50.0, 50.5, 49.5)
    for b, changes in ((same, ("same", "unclear")), (worse, ("regressed", "regressed"))):
        sound = Figures(point="x", metric="throughput", a=same, b=b, in_pairs=True)
        doubted = sound.model_copy(update={"doubt": "A: the client was late"})
        assert tuple(entry.change for entry in judge([sound, doubted])) == changes
        assert judge([doubted])[0].text == f"{judge([sound])[0].text}; A: the client was late"


@pytest.mark.parametrize(("metric", "change"), [("throughput", "regressed"), ("p50_ms", "improved")])
def test_half_of_a_rate_is_a_loss_and_half_of_a_latency_a_gain(metric: str, change: str) -> None:
    figures = Figures(point="x", metric=metric, a=(100.0, 101.0, 99.0), b=(50.0, 50.5, 49.5), in_pairs=True)
    assert judge([figures])[0].change == change
