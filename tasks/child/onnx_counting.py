"""What one call of an ONNX graph costs, by the shapes that ONNX infers."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import onnx

Shapes = Mapping[str, tuple[int, ...]]
"""Name of a tensor -> its shape, where every axis is known."""


def count(model: Any, inputs: Shapes) -> tuple[float | None, int]:
    """Floating-point operations of one call with inputs of these shapes, a multiply-add as two, and
    floating-point weights.

    Counted are matrix products and convolutions, as PyTorch's counter has them. The operations are None
    where the shape of one of these is not known before the graph runs.
    """
    for value in model.graph.input:
        for axis, size in zip(value.type.tensor_type.shape.dim, inputs.get(value.name, ()), strict=False):
            axis.dim_value = size
    graph = onnx.shape_inference.infer_shapes(model, data_prop=True).graph
    weights = {tensor.name: tuple(tensor.dims) for tensor in graph.initializer}
    known = weights | dict(_shapes((*graph.input, *graph.value_info, *graph.output)))
    found = [operations(node, known) for node in graph.node if node.op_type in OPERATIONS]
    floats = sum(math.prod(tensor.dims) for tensor in graph.initializer if _is_float(tensor))
    return (None if None in found else float(sum(filter(None, found)))), floats


def operations(node: Any, known: Shapes) -> int | None:
    """Of one product or convolution; None: a shape is not known."""
    first, second, out = (known.get(name) for name in (node.input[0], node.input[1], node.output[0]))
    if first is None or second is None or out is None:
        return None
    attributes = {entry.name: onnx.helper.get_attribute_value(entry) for entry in node.attribute}
    return 2 * OPERATIONS[node.op_type](first, second, out, attributes)


def _conv(image: Sequence[int], kernel: Sequence[int], out: Sequence[int], attributes: Any) -> int:
    """Every output by a kernel [out, in / groups, *space]."""
    return math.prod(out) * math.prod(kernel[1:])


def _conv_transpose(image: Sequence[int], kernel: Sequence[int], out: Sequence[int], attributes: Any) -> int:
    """Every input by a kernel [in, out / groups, *space]."""
    return math.prod(image) * math.prod(kernel[1:])


def _gemm(a: Sequence[int], b: Sequence[int], out: Sequence[int], attributes: Any) -> int:
    return math.prod(out) * a[0 if attributes.get("transA") else 1]


def _matmul(a: Sequence[int], b: Sequence[int], out: Sequence[int], attributes: Any) -> int:
    return math.prod(out) * a[-1]


OPERATIONS = {"Conv": _conv, "ConvTranspose": _conv_transpose, "Gemm": _gemm, "MatMul": _matmul}


def _shapes(values: Sequence[Any]) -> Iterator[tuple[str, tuple[int, ...]]]:
    for value in values:
        tensor = value.type.tensor_type
        if tensor.HasField("shape") and all(axis.HasField("dim_value") for axis in tensor.shape.dim):
            yield value.name, tuple(axis.dim_value for axis in tensor.shape.dim)


def _is_float(tensor: Any) -> bool:
    return bool(np.issubdtype(onnx.helper.tensor_dtype_to_np_dtype(tensor.data_type), np.floating))
