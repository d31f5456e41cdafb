"""Which shapes an engine is built for: the spec's, or what is served."""

from __future__ import annotations

from typing import Any

import pytest

from servegrid.domain.spec import ModelSpec
from servegrid.plan.spec_rules import RULES

RANGES = {
    "min": [1, "length", 3, 2],
    "opt": [4, "length", 3, 5],
    "max": [8, "length", 3, 9],
}


def spec_of(data: dict[str, Any], **ranges: Any) -> ModelSpec:
    data["formats"]["trt"] = {"export": "onnx", "precisions": ["fp32"]}
    if ranges:
        data["variants"]["tiny"]["convert"] = {"shapes": {"x": ranges}}
    return ModelSpec.model_validate(data, context=RULES)


def test_ranges_of_the_spec_have_numbers_for_parameters(model_data: dict[str, Any]) -> None:
    (range_,) = spec_of(model_data, **RANGES).engine_shapes("tiny", {"length": 64}).values()
    assert (range_.min, range_.opt, range_.max) == ((1, 64, 3, 2), (4, 64, 3, 5), (8, 64, 3, 9))


def test_without_ranges_every_batch_that_is_served_fits_and_the_largest_preferred_is_likeliest(
    model_data: dict[str, Any],
) -> None:
    model_data["inputs"][0]["shape"][-1] = 5
    model_data["variants"]["tiny"]["serving"] |= {"max_batch_size": 32, "preferred_batch_sizes": [4, 16]}
    shapes = spec_of(model_data).engine_shapes("tiny", {"length": 64})
    assert set(shapes) == {"x"}
    assert (shapes["x"].min, shapes["x"].opt) == ((1, 64, 3, 5), (16, 64, 3, 5))
    assert shapes["x"].max == (32, 64, 3, 5)
    model_data["variants"]["tiny"]["serving"]["preferred_batch_sizes"] = []
    assert spec_of(model_data).engine_shapes("tiny", {"length": 64})["x"].opt == (32, 64, 3, 5)


def test_free_axis_needs_a_range(model_data: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=r"variants\.tiny\.convert\.shapes\.x\b.*min, opt and max"):
        spec_of(model_data)


@pytest.mark.parametrize(
    ("end", "shape", "named"),
    [
        ("min", [1, "length", 3, 6], "axis 3: 1 <= min <= opt <= max is wanted, not 6, 5, 9"),
        ("max", [8, "length", 3, 4], "axis 3: 1 <= min <= opt <= max is wanted, not 2, 5, 4"),
        ("min", [1, "length", 3, 0], "axis 3: 1 <= min <= opt <= max is wanted, not 0, 5, 9"),
        ("max", [8, "length", 4, 9], "axis 2 is 3, not 3 to 4"),
        ("min", [1, 32, 3, 2], "axis 1 is 64, not 32 to 64"),
        ("min", [2, "length", 3, 2], "batches of 1 to serving.max_batch_size, 8, are served, not 2 to 8"),
        ("max", [4, "length", 3, 9], "batches of 1 to serving.max_batch_size, 8, are served, not 1 to 4"),
        ("opt", [4, "length", 3], "[4, 'length', 3] fits no input of that name"),
        ("opt", [4, "width", 3, 5], "parameters.width: a whole number, for it is an axis"),
    ],
)
def test_wrong_range_is_refused(model_data: dict[str, Any], end: str, shape: list[Any], named: str) -> None:
    with pytest.raises(ValueError) as caught:
        spec_of(model_data, **(RANGES | {end: shape}))
    assert named in str(caught.value)
