"""The roofline of made-up machines: the limit, and its columns."""

from __future__ import annotations

from typing import Any

import pytest

from servegrid.campaign.results import MEASUREMENTS
from servegrid.campaign.row_columns import roofline_columns
from servegrid.domain.roofline import Ceilings, Count, Roofline
from servegrid.domain.values import Serving

COUNT = Count(flops=1e9, weights=1_000_000, sample_bytes=1000)
MACHINE = Ceilings(flops_per_s={"fp32": 1e12, "fp16": 1e11, "bf16": 8e12, "int8": None}, bytes_per_s=1e9)


def limit(precision: Any, batch: int, **count: Any) -> tuple[float, str]:
    found = Roofline(count=COUNT.model_copy(update=count), ceilings=MACHINE).limit(precision, batch)
    assert found is not None
    return found.throughput, found.kind


def test_the_longer_of_arithmetic_and_traffic_is_the_limit() -> None:
    # 1 ms of arithmetic a sample; 4 MB of weights a batch take 4 ms.
    assert limit("fp32", 1) == (pytest.approx(1 / 4.001e-3), "memory")
    assert limit("fp32", 8) == (pytest.approx(1000), "compute")
    assert limit("fp32", 4, sample_bytes=0) == (pytest.approx(1000), "compute")


def test_limit_is_that_of_the_fastest_wider_precision() -> None:
    assert limit("fp16", 8) == (pytest.approx(1000), "compute")
    assert limit("bf16", 100) == (pytest.approx(8000), "compute")
    assert limit("int8", 100) == (pytest.approx(8000), "compute")


@pytest.mark.parametrize("change", [{"flops": None}, {"weights": None}])
def test_without_counted_operations_there_is_no_limit(change: dict[str, None]) -> None:
    roofline = Roofline(count=COUNT.model_copy(update=change), ceilings=MACHINE)
    serving = Serving(batching="static", max_batch_size=8)
    assert roofline.limit("fp32", 1) is None
    assert roofline_columns(roofline, "fp32", serving, {"batch": 1, "throughput": 1.0}) == {}
    assert roofline_columns(None, "fp32", serving, {"batch": 1, "throughput": 1.0}) == {}


@pytest.mark.parametrize(("batching", "most"), [("static", 1 / 4.001e-3), ("dynamic", 1000)])
def test_a_point_has_its_share_and_the_dynamic_batcher_its_largest_batch(batching: Any, most: float) -> None:
    serving = Serving(batching=batching, max_batch_size=8)
    row = {"batch": 1, "throughput": 100.0}
    found = roofline_columns(Roofline(count=COUNT, ceilings=MACHINE), "fp32", serving, row)
    assert set(found) <= set(MEASUREMENTS)
    assert found["share_of_limit"] == pytest.approx(100 / most)
    assert found["limit"] == ("memory" if batching == "static" else "compute")
    assert (found["flops_per_inference"], found["limit_throughput"]) == (1e9, pytest.approx(most))
