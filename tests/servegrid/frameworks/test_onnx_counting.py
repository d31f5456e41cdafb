"""Operations of ONNX graphs, against figures made by hand."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper

from servegrid.frameworks.model_files.onnx_counting import count


def graph(
    node: str,
    weights: tuple[int, ...],
    x: tuple[Any, ...],
    *,
    before: tuple[Any, ...] = (),
    **attributes: Any,
) -> Any:
    """x (by way of `before`) and a weight -> y, whose shape is not written down."""
    value = helper.make_tensor_value_info
    nodes = [*before, helper.make_node(node, ["b" if before else "x", "w"], ["y"], **attributes)]
    made = helper.make_graph(
        nodes,
        "g",
        [value("x", TensorProto.FLOAT, x)],
        [value("y", TensorProto.FLOAT, None)],
        [
            numpy_helper.from_array(np.zeros(weights, np.float32), "w"),
            numpy_helper.from_array(np.zeros(3, np.int64), "whole"),
        ],
    )
    return helper.make_model(made, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)


@pytest.mark.parametrize(
    ("node", "weights", "x", "attributes", "flops"),
    [
        ("MatMul", (6, 5), (2, 3, 6), {}, 2 * (2 * 3 * 5) * 6),
        ("Gemm", (6, 5), (2, 6), {}, 2 * (2 * 5) * 6),
        ("Gemm", (5, 6), (2, 6), {"transB": 1}, 2 * (2 * 5) * 6),
        ("Gemm", (6, 5), (6, 2), {"transA": 1}, 2 * (2 * 5) * 6),
        ("Conv", (8, 3, 3, 3), (2, 3, 9, 9), {"strides": [2, 2]}, 2 * (2 * 8 * 4 * 4) * (3 * 3 * 3)),
        ("Conv", (8, 1, 3, 3), (2, 8, 9, 9), {"group": 8}, 2 * (2 * 8 * 7 * 7) * (3 * 3)),
        ("ConvTranspose", (3, 8, 2, 2), (2, 3, 5, 5), {"strides": [2, 2]}, 2 * (2 * 3 * 5 * 5) * (8 * 2 * 2)),
        ("Mul", (6,), (2, 6), {}, 0),
    ],
)  # fmt: skip
def test_operations_follow_from_the_shapes(
    node: str, weights: tuple[int, ...], x: tuple[int, ...], attributes: dict[str, Any], flops: int
) -> None:
    free = ("batch", *x[1:])
    assert count(graph(node, weights, free, **attributes), {"x": x}) == (flops, np.prod(weights))


def test_a_shape_known_only_at_run_time_leaves_the_operations_unknown() -> None:
    before = (helper.make_node("NonZero", ["x"], ["n"]), helper.make_node("Cast", ["n"], ["b"], to=1))
    assert count(graph("MatMul", (6, 5), ("batch", 6), before=before), {"x": (2, 6)}) == (None, 30)
