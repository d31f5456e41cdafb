"""`convert.onnx` of a variant: how its ONNX graph is fused, and brought to int8."""

from __future__ import annotations

from pydantic import Field, PositiveInt

from tasks.core.values import Value


class Fusion(Value):
    """What ONNX Runtime's transformer optimizer is told, and what it must achieve.

    `fused` maps an operator to how many of its nodes there must be at least: another exporter or another
    optimizer fuses nothing, and says nothing.
    """

    model_type: str
    num_heads: PositiveInt
    hidden_size: PositiveInt
    fused: dict[str, PositiveInt] = Field(min_length=1)


class Quantization(Value):
    """How static quantization to int8 goes.

    `samples`: how many of the model's first samples give the ranges of its tensors. `keep_float`: what stays
    in float: operator types, or node names, of which the beginning will do.
    """

    samples: PositiveInt = 64
    keep_float: tuple[str, ...] = ()


class OnnxConversion(Value):
    """What a variant's conversions to ONNX are told."""

    optimize: Fusion | None = None
    int8: Quantization = Quantization()
