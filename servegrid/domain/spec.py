"""`model.yaml` as values."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Any, NamedTuple

from pydantic import Field, ValidationInfo, field_validator, model_validator

from servegrid.domain import conversion as shapes
from servegrid.domain.conversion import OnnxConversion, ShapeRange, Source
from servegrid.domain.names import (
    LARGEST_INT32,
    Argument,
    Bytes,
    Count,
    CountOrZero,
    FiniteScalar,
    Name,
    Opset,
    Seconds,
    Text,
    Unique,
    WholeSeconds,
)
from servegrid.domain.tolerances import ConversionTolerance, Metric, Tolerances
from servegrid.domain.values import (
    Accelerator,
    BatchLimit,
    ExportFormat,
    Format,
    Framework,
    InputData,
    Interface,
    Precision,
    Protocol,
    Scalar,
    SharedMemory,
    Tensor,
    Value,
)

Counts = Annotated[tuple[Count, ...], Unique]


class FormatSpec(Value):
    """A serving format. `cuda` means `none`; `unsupported`: why the model cannot be made into it."""

    export: ExportFormat
    precisions: Annotated[tuple[Precision, ...], Unique]
    unsupported: str | None = None
    accelerators: tuple[Accelerator, ...] = Field(("none",), min_length=1)

    @field_validator("accelerators", mode="before")
    @classmethod
    def _fold(cls, given: Any) -> Any:
        if not isinstance(given, list | tuple):
            return given
        names = ["none" if name == "cuda" else name for name in given]
        return tuple(name for place, name in enumerate(names) if name not in names[:place])


class Conversion(Value):
    """Settings of a variant's conversions.

    On the example in its export, a converted model must be within the tolerances of its precision, and within
    `tolerance` if that is tighter.
    """

    workspace_bytes: Bytes | None = None
    shapes: dict[str, ShapeRange] = Field({})
    tolerance: ConversionTolerance | None = None
    onnx: OnnxConversion = OnnxConversion()


class ServingDefaults(BatchLimit):
    """The settings of a variant's servings. `max_batch_size` 0: the first axis of the inputs is a number.

    `warm_up`: the server runs each measured batch size as it loads the model, on zeros, which the model
    must be able to answer. The load takes longer, and the first request less.
    """

    preferred_batch_sizes: Counts
    max_queue_delay_us: CountOrZero
    instances: Counts = Field((1,), min_length=1)
    protocol: Protocol = "grpc"
    cuda_graph: bool = False
    warm_up: bool = False
    load_timeout_s: WholeSeconds


class LoadDefaults(Value):
    """Load settings of both scenarios; `--fixed-points` sends the published table's input data."""

    shared_memory: SharedMemory = "system"
    input_data: InputData = "samples"
    published_input_data: InputData | None = None
    request_count: Count = 50
    window_s: Seconds = 1.0
    warm_up: bool = True


class OfflineDefaults(LoadDefaults):
    """Offline points: batch sizes at concurrency 1."""

    batch_sizes: Counts = Field(min_length=1)


class OnlineDefaults(LoadDefaults):
    """Online points: concurrencies at one client batch."""

    client_batch: Count
    concurrency: Counts = Field(min_length=1)


class Variant(Value):
    """A size of the model: `full` is the published one, `tiny` runs on a laptop CPU."""

    parameters: dict[Argument, FiniteScalar]
    sources: tuple[Source, ...] = ()
    samples: Count
    step_timeout_s: WholeSeconds = 1800
    convert: Conversion = Conversion()
    serving: ServingDefaults
    offline: OfflineDefaults
    online: OnlineDefaults
    metric: Metric | None = None

    @model_validator(mode="after")
    def _fits(self) -> Variant:
        limit = self.serving.max_batch_size
        if not self.serving.batches:
            return self  # each batch has the size of the inputs' first axis, which the model's spec holds
        for key, sizes in (
            ("serving.preferred_batch_sizes", self.serving.preferred_batch_sizes),
            ("offline.batch_sizes", self.offline.batch_sizes),
            ("online.client_batch", (self.online.client_batch,)),
        ):
            if max(sizes, default=0) > limit:
                raise ValueError(f"{key}: {max(sizes)} is over serving.max_batch_size, {limit}")
        return self


class FormatRules(NamedTuple):
    """Rules that need all formats, a layer above: the context in which pydantic validates a spec."""

    wrong: Callable[[ModelSpec], str | None]
    """The error in a spec's formats, if there is one."""
    has_engines: Callable[[ModelSpec], bool]
    """Whether one of the formats holds engines, which are built for given shapes."""


class ModelSpec(Value):
    """`models/<name>/model.yaml`."""

    name: Name
    description: str
    framework: Framework
    requires: tuple[Text, ...]
    opset: Opset
    inputs: tuple[Tensor, ...] = Field(min_length=1)
    outputs: tuple[Tensor, ...] = Field(min_length=1)
    formats: dict[Format, FormatSpec]
    tolerances: dict[Precision, Tolerances]
    variants: dict[Name, Variant]

    @model_validator(mode="after")
    def _complete(self, info: ValidationInfo) -> ModelSpec:
        rules: FormatRules | None = info.context
        used = {p for f in self.formats.values() for p in f.precisions}
        problem = (
            _wrong_tensors(self) or (rules.wrong(self) if rules else None) or _wrong_tolerances(self, used)
        )
        engines = not problem and rules is not None and rules.has_engines(self)
        for name, variant in self.variants.items():
            problem = problem or _wrong_variant(self, f"variants.{name}", variant, used, engines)
        if problem:
            raise ValueError(problem)
        return self

    @property
    def fixed_batch(self) -> int | None:
        """The first axis of the inputs if it is a number: the only batch size of such a model."""
        first = self.inputs[0].shape[0]
        return first if isinstance(first, int) and first > 0 else None

    def interface(self, parameters: dict[str, Scalar]) -> Interface:
        """Inputs and outputs with parameter names replaced by their numbers."""

        def resolve(tensor: Tensor) -> Tensor:
            axes = [_axis(a, parameters) for a in tensor.shape[1:]]
            return tensor.model_copy(update={"shape": (self.fixed_batch or -1, *axes)})

        return Interface(inputs=tuple(map(resolve, self.inputs)), outputs=tuple(map(resolve, self.outputs)))

    def engine_shapes(self, variant: str, parameters: dict[str, Scalar]) -> dict[str, ShapeRange]:
        """The shapes for which an engine of the variant is built, by input, every axis a number:
        `convert.shapes`, or all served batches, with the largest preferred one as the optimum.

        Raises:
            ValueError: a range is missing, or does not fit its input or the served batches.
        """
        serving, convert = self.variants[variant].serving, self.variants[variant].convert
        return shapes.of_engine(
            self.interface(parameters).inputs,
            {name: range_.resolve(parameters) for name, range_ in convert.shapes.items()},
            likeliest=max(serving.preferred_batch_sizes, default=serving.max_batch_size),
            largest=serving.max_batch_size,
        )

    def conversion_tolerances(self, variant: str, precision: Precision) -> Tolerances:
        """The tolerances between a converted model and its export."""
        tolerances, bound = self.tolerances[precision], self.variants[variant].convert.tolerance
        if bound is None:
            return tolerances
        outputs = {n: t.model_copy(update=bound.tighten(t)) for n, t in tolerances.outputs.items()}
        return tolerances.model_copy(update={**bound.tighten(tolerances), "outputs": outputs})


def _axis(axis: int | str, parameters: dict[str, Scalar]) -> int:
    return axis if isinstance(axis, int) else int(parameters[axis])


def _wrong_tensors(spec: ModelSpec) -> str | None:
    for kind, tensors in (("inputs", spec.inputs), ("outputs", spec.outputs)):
        names = [tensor.name for tensor in tensors]
        for name in names:
            if names.count(name) > 1:
                return f"{kind}: two have the name {name!r}"
        for tensor in tensors:
            for axis in tensor.shape:
                if isinstance(axis, int) and axis != -1 and not 1 <= axis <= LARGEST_INT32:
                    return f"{kind}.{tensor.name}.shape: {axis}: an axis is from 1, -1 (free) or a name"
    return None


def _wrong_tolerances(spec: ModelSpec, used: set[Precision]) -> str | None:
    for missing in sorted(used - set(spec.tolerances)):
        return f"tolerances: no entry for precision {missing!r}, which formats use"
    outputs = {t.name for t in spec.outputs}
    for precision, tolerance in spec.tolerances.items():
        for strange in sorted(set(tolerance.outputs) - outputs):
            return f"tolerances.{precision}.outputs.{strange}: no such output"
    return None


def _wrong_variant(
    spec: ModelSpec, where: str, variant: Variant, used: set[Precision], engines: bool
) -> str | None:
    problem = wrong_batches(spec, where, variant)
    if problem:
        return problem
    named = {t.name: t for t in spec.inputs}
    axes = [axis for t in (*spec.inputs, *spec.outputs) for axis in t.shape[1:]]
    for name, range_ in variant.convert.shapes.items():
        for _, shape in range_:
            if name not in named or len(shape) != len(named[name].shape):
                return f"{where}.convert.shapes.{name}: {list(shape)} fits no input of that name"
            axes += shape
    for axis in axes:
        if isinstance(axis, str) and not isinstance(variant.parameters.get(axis), int):
            return f"{where}.parameters.{axis}: expected a whole number, because it is an axis (free: -1)"
    if variant.convert.shapes or engines:
        try:
            spec.engine_shapes(where.removeprefix("variants."), variant.parameters)
        except ValueError as error:
            return f"{where}.convert.shapes.{error}"
    for missing in sorted(used - set(variant.metric.drop if variant.metric else used)):
        return f"{where}.metric.drop: no entry for precision {missing!r}"
    return None


def wrong_batches(spec: ModelSpec, where: str, variant: Variant) -> str | None:
    """The setting that does not fit the first axis of the inputs, if there is one."""
    fixed, serving = spec.fixed_batch, variant.serving
    if fixed is None:
        return None if serving.batches else f"{where}.serving.max_batch_size: at least 1"
    if spec.framework == "torch":
        return (
            f"inputs.{spec.inputs[0].name}.shape: a network of PyTorch's is exported with a free first axis"
        )
    for tensor in (*spec.inputs, *spec.outputs):
        if tensor.shape[0] != fixed:
            return (
                f"{tensor.name}.shape: its first axis is {tensor.shape[0]}, that of the first input {fixed}"
            )
    sizes = {*variant.offline.batch_sizes, variant.online.client_batch}
    if serving.batches or serving.preferred_batch_sizes or sizes != {fixed}:
        return (
            f"{where}: with a first axis of {fixed} the server does no batching: serving.max_batch_size 0, "
            f"no preferred_batch_sizes, and batches of {fixed} only"
        )
    return None
