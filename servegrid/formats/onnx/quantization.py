"""Static quantization of an ONNX graph to int8, by ONNX Runtime's quantizer."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import onnx
from onnx import version_converter
from onnxruntime.quantization import CalibrationDataReader, QuantFormat, QuantType, quantize_static
from onnxruntime.quantization.shape_inference import quant_pre_process

from servegrid.domain.arrays import Arrays
from servegrid.domain.conversion import Quantization

OPERATORS = ("Conv", "ConvTranspose", "MatMul", "Gemm", "Gather")
"""The operators that hold a model's weights. All others stay in float: with them in int8 tiny BERT's F1 fell
from 0.94 to 0.12."""
PER_CHANNEL_OPSET = 13
"""The first opset whose DequantizeLinear has an axis (ONNX, Operators.md)."""


def quantize(source: Path, options: Quantization, samples: Path) -> onnx.ModelProto:
    """The graph with Q/DQ nodes: weights in int8, one scale an output channel; inputs and outputs stay float.

    Scales are symmetric and biases stay in float, so that TensorRT takes the graph too (TensorRT, Working
    with Quantized Types: zero points must be 0). Ranges are the smallest and largest values of the samples.

    Raises:
        ValueError: `keep_float` has a name that this graph lacks.
    """
    with TemporaryDirectory() as folder:
        prepared, target = Path(folder) / "prepared.onnx", Path(folder) / "quantized.onnx"
        model = onnx.load(str(source))
        if next(e.version for e in model.opset_import if e.domain == "") < PER_CHANNEL_OPSET:
            source = Path(folder) / "raised.onnx"
            onnx.save(version_converter.convert_version(model, PER_CHANNEL_OPSET), str(source))
        # Folds constants and batch normalization first, because only constants are quantized as weights.
        quant_pre_process(str(source), str(prepared), skip_symbolic_shape=True)
        graph = onnx.load(str(prepared), load_external_data=False).graph
        operators, nodes = _in_float(graph, options)
        quantize_static(
            str(prepared),
            str(target),
            Calibration(samples, [entry.name for entry in graph.input], options.samples),
            quant_format=QuantFormat.QDQ,
            op_types_to_quantize=operators,
            nodes_to_exclude=nodes,
            per_channel=True,
            activation_type=QuantType.QInt8,
            weight_type=QuantType.QInt8,
            extra_options={
                "ActivationSymmetric": True,
                "WeightSymmetric": True,
                "QuantizeBias": False,
                "MatMulConstBOnly": True,
            },
        )
        return onnx.load(str(target))


class Calibration(CalibrationDataReader):  # type: ignore[misc]  # it has no types
    """The first `count` samples, one at a time: the activations of a large batch might not fit in memory."""

    def __init__(self, samples: Path, names: list[str], count: int) -> None:
        with np.load(samples) as file:
            self._x = {name: file[f"x/{name}"][:count] for name in names}
        self._rows = self._each()

    def _each(self) -> Iterator[Arrays]:
        for row in range(len(next(iter(self._x.values())))):
            yield {name: values[row : row + 1] for name, values in self._x.items()}

    def get_next(self) -> Arrays | None:
        return next(self._rows, None)


def _in_float(graph: onnx.GraphProto, options: Quantization) -> tuple[list[str], list[str]]:
    """The operators to quantize, and the nodes to leave in float."""
    nodes: list[str] = []
    for name in options.keep_float:
        found = [] if name in OPERATORS else [n.name for n in graph.node if n.name.startswith(name)]
        if name not in OPERATORS and not found:
            raise ValueError(
                f"convert.onnx.int8.keep_float: no node's name starts with {name!r}, and it is no operator "
                f"that is quantized ({', '.join(OPERATORS)})"
            )
        nodes += found
    return [name for name in OPERATORS if name not in options.keep_float], nodes
