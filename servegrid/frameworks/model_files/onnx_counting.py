"""Operations and weights of an ONNX graph, by the shapes that ONNX infers."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import onnx

Shapes = Mapping[str, tuple[int, ...]]
"""Name of a tensor -> its shape, every axis a number."""
COUNTED = ("Conv", "ConvTranspose", "Gemm", "MatMul")


def count(model: Any, inputs: Shapes) -> tuple[float | None, int]:
    """Floating-point operations of one call with inputs of these shapes, a multiply-add as two, and
    floating-point weights.

    Matrix products and convolutions count, as in PyTorch's counter. The operations are None where the shape
    of one of them is known only when the graph runs.
    """
    for value in model.graph.input:
        for axis, size in zip(value.type.tensor_type.shape.dim, inputs.get(value.name, ()), strict=False):
            axis.dim_value = size
    graph = onnx.shape_inference.infer_shapes(model, data_prop=True).graph
    weights = {tensor.name: tuple(tensor.dims) for tensor in graph.initializer}
    known = weights | dict(_shapes((*graph.input, *graph.value_info, *graph.output)))
    found = [operations(node, known) for node in graph.node if node.op_type in COUNTED]
    floats = sum(math.prod(tensor.dims) for tensor in graph.initializer if _is_float(tensor))
    return (None if None in found else float(sum(filter(None, found)))), floats


def operations(node: Any, known: Shapes) -> int | None:
    """Operations of one product or convolution; None: a shape is not known."""
    first, second, out = (known.get(name) for name in (node.input[0], node.input[1], node.output[0]))
    if first is None or second is None or out is None:
        return None
    match node.op_type:
        case "Conv":  # every output by a kernel [out, in / groups, *space]
            products = math.prod(out) * math.prod(second[1:])
        case "ConvTranspose":  # every input by a kernel [in, out / groups, *space]
            products = math.prod(first) * math.prod(second[1:])
        case "Gemm":
            across = any(entry.name == "transA" and entry.i for entry in node.attribute)
            products = math.prod(out) * first[0 if across else 1]
        case "MatMul":
            products = math.prod(out) * first[-1]
    return 2 * products


def _shapes(values: Sequence[Any]) -> Iterator[tuple[str, tuple[int, ...]]]:
    for value in values:
        tensor = value.type.tensor_type
        if tensor.HasField("shape") and all(axis.HasField("dim_value") for axis in tensor.shape.dim):
            yield value.name, tuple(axis.dim_value for axis in tensor.shape.dim)


def _is_float(tensor: Any) -> bool:
    return bool(np.issubdtype(onnx.helper.tensor_dtype_to_np_dtype(tensor.data_type), np.floating))
