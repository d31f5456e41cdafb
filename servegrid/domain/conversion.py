"""Settings of conversions: fusion, quantization, ranges of shapes of an engine; and the files of a user."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from servegrid.domain.names import Bytes, Count, Dimension, Text
from servegrid.domain.values import Scalar, Tensor, Value


class Fusion(Value):
    """Arguments of ONNX Runtime's transformer optimizer, and the result that it must reach.

    `fused`: operator -> the fewest fused nodes. After another exporter the optimizer may fuse nothing,
    silently.
    """

    model_type: Text
    num_heads: Count
    hidden_size: Count
    fused: dict[str, Count] = Field(min_length=1)


class Quantization(Value):
    """Settings of static quantization to int8.

    `samples`: the number of the model's first samples from which tensor ranges are measured. `keep_float`:
    operator types, or prefixes of node names, that stay in float.
    """

    samples: Count = 64
    keep_float: tuple[Text, ...] = ()


class OnnxConversion(Value):
    """Settings of a variant's conversions to ONNX."""

    optimize: Fusion | None = None
    int8: Quantization = Quantization()


class ShapeRange(Value):
    """The smallest, optimum and largest shape of an input for which an engine is built."""

    min: tuple[Dimension, ...]
    opt: tuple[Dimension, ...]
    max: tuple[Dimension, ...]

    def resolve(self, parameters: dict[str, Scalar]) -> ShapeRange:
        """The range with parameter names replaced by their numbers."""
        ends = {
            end: tuple(axis if isinstance(axis, int) else int(parameters[axis]) for axis in shape)
            for end, shape in self
        }
        return ShapeRange.model_validate(ends)


def of_engine(
    inputs: tuple[Tensor, ...], given: dict[str, ShapeRange], *, likeliest: int, largest: int
) -> dict[str, ShapeRange]:
    """The range of every input: the given one, or batches from one sample to the largest.

    Every axis is a number, of the inputs (-1: free) and of the given ranges.

    Raises:
        ValueError: a given range does not fit its input or the served batches, or one is missing.
    """
    ranges = {t.name: given.get(t.name) or _batches(t, likeliest, largest) for t in inputs}
    return {t.name: _checked(t, ranges[t.name], largest) for t in inputs}


def _batches(tensor: Tensor, likeliest: int, largest: int) -> ShapeRange:
    rest = tensor.shape[1:]
    if -1 in rest:
        raise ValueError(f"{tensor.name}: needs min, opt and max, because it has a free axis")
    return ShapeRange(min=(1, *rest), opt=(likeliest, *rest), max=(largest, *rest))


def _checked(tensor: Tensor, shapes: ShapeRange, largest: int) -> ShapeRange:
    ends = (tuple(map(int, shape)) for _, shape in shapes)
    for axis, (low, opt, high, fixed) in enumerate(zip(*ends, tensor.shape, strict=True)):
        where = f"{tensor.name}: axis {axis}"
        if not 1 <= low <= opt <= high:
            raise ValueError(f"{where}: expected 1 <= min <= opt <= max, found {low}, {opt}, {high}")
        if fixed not in (-1, low) or fixed not in (-1, high):
            raise ValueError(f"{where} is {fixed}, not {low} to {high}")
        if axis == 0 and not (low == 1 and high >= largest):
            raise ValueError(
                f"{where}: batches of 1 to serving.max_batch_size, {largest}, are served, not {low} to {high}"
            )
    return shapes


class Source(Value):
    """A file or folder that the user must provide for a variant: its name, and where it is published.

    size (bytes) and digest (`md5:...` or `sha256:...`) are of the download. commands make the file of it;
    FOLDER is the model's folder below `sources/`, DOWNLOAD a download whose name is not known.
    """

    file: Text
    published: str
    content: str = ""
    download: Text | None = None
    size: Bytes | None = None
    digest: Annotated[str, Field(pattern=r"^(md5:[0-9a-f]{32}|sha256:[0-9a-f]{64})$")] | None = None
    commands: tuple[Text, ...] = ()
