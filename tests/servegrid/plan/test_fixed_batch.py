"""Models whose tensors have a first axis of one size: no batching, and batches of just that size."""

from __future__ import annotations

from typing import Any

import pytest

from servegrid.domain.profile import GpuProfile
from servegrid.domain.releases import load_releases
from servegrid.domain.spec import ModelSpec
from servegrid.plan.matrix import expand
from servegrid.plan.selection import Selection


@pytest.fixture
def fixed(model_data: dict[str, Any]) -> dict[str, Any]:
    """A model whose inputs and outputs have a first axis of 4."""
    model_data |= {"framework": "onnx", "formats": {"onnx": {"export": "onnx", "precisions": ["fp32"]}}}
    for tensor in (*model_data["inputs"], *model_data["outputs"]):
        tensor["shape"][0] = 4
    tiny = model_data["variants"]["tiny"]
    tiny["serving"] |= {"max_batch_size": 0, "preferred_batch_sizes": []}
    tiny["offline"]["batch_sizes"], tiny["online"]["client_batch"] = [4], 4
    return model_data


def test_fixed_first_axis_is_served_without_batching(fixed: dict[str, Any], profile: GpuProfile) -> None:
    spec = ModelSpec.model_validate(fixed)
    assert spec.interface({"length": 64}).inputs[0].shape == (4, 64, 3, -1)
    cell = expand(
        spec,
        "tiny",
        profile,
        generator="perf_analyzer",
        triton_release="24.10",
        releases=load_releases(),
        selection=Selection(max_batch_size=2),
    ).cells[0]
    for serving in (cell.static, cell.dynamic):
        assert (serving.batching, serving.max_batch_size) == ("disabled", 0)
    assert (cell.offline.points[0], cell.online.points[0]) == ((4, 1), (4, 1))
    assert {cell.offline.generator, cell.online.generator} == {"client"}


@pytest.mark.parametrize(
    ("where", "value"),
    [
        ("serving", {"max_batch_size": 8}),
        ("offline", {"batch_sizes": [1]}),
        ("online", {"client_batch": 2}),
    ],
)
def test_fixed_first_axis_takes_no_other_batches(
    where: str, value: dict[str, Any], fixed: dict[str, Any]
) -> None:
    fixed["variants"]["tiny"][where] |= value
    with pytest.raises(ValueError, match=r"variants\.tiny\b.*\b4\b.*max_batch_size 0"):
        ModelSpec.model_validate(fixed)


def test_first_axes_are_all_the_same_or_free(fixed: dict[str, Any]) -> None:
    fixed["outputs"][0]["shape"][0] = 2
    with pytest.raises(ValueError, match=r"y\.shape\b.*\b2\b.*\b4\b"):
        ModelSpec.model_validate(fixed)
    fixed["inputs"][0]["shape"][0] = fixed["outputs"][0]["shape"][0] = "batch"
    with pytest.raises(ValueError, match=r"variants\.tiny\.serving\.max_batch_size\b.*\b1\b"):
        ModelSpec.model_validate(fixed)
