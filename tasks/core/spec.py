"""`model.yaml` and `gpu_profiles/*.yaml` as values, with errors that name file and key."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal, TypeVar

import yaml
from pydantic import Field, PositiveInt, ValidationError, model_validator

from tasks.core.errors import UserError
from tasks.core.values import ExportFormat, Format, Interface, Precision, Scalar, Tensor, Value

SpecT = TypeVar("SpecT", bound=Value)


class Source(Value):
    """One file that a variant reads and does not make: its name, and where it is published."""

    file: str
    published: str


class FormatSpec(Value):
    """A format that the model may be served in: made from which export, in which precisions."""

    export: ExportFormat
    precisions: tuple[Precision, ...]


class Tolerance(Value):
    """Largest absolute difference and smallest cosine similarity to the framework's fp32 outputs."""

    absolute: float = Field(gt=0)
    cosine: float = Field(gt=0, le=1)


class Metric(Value):
    """The task metric: higher is better. `drop` bounds framework minus served, by precision."""

    name: str
    threshold: float
    drop: dict[Precision, float]


class ServingDefaults(Value):
    """What both servings of a variant share, and what the dynamic batcher adds."""

    max_batch_size: PositiveInt
    preferred_batch_sizes: tuple[PositiveInt, ...]
    max_queue_delay_us: int = Field(ge=0)
    instances: tuple[PositiveInt, ...] = Field((1,), min_length=1)
    load_timeout_s: PositiveInt


class OfflineDefaults(Value):
    """Offline points: batch sizes at concurrency 1."""

    batch_sizes: tuple[PositiveInt, ...] = Field(min_length=1)


class OnlineDefaults(Value):
    """Online points: concurrencies at one client batch."""

    client_batch: PositiveInt
    concurrency: tuple[PositiveInt, ...] = Field(min_length=1)


class Variant(Value):
    """A size of the model: `full` is the published one, `tiny` runs on a laptop CPU."""

    parameters: dict[str, Scalar]
    sources: tuple[Source, ...] = ()
    samples: PositiveInt
    step_timeout_s: PositiveInt = 1800
    serving: ServingDefaults
    offline: OfflineDefaults
    online: OnlineDefaults
    metric: Metric

    @model_validator(mode="after")
    def _fits(self) -> Variant:
        limit = self.serving.max_batch_size
        for key, sizes in (
            ("serving.preferred_batch_sizes", self.serving.preferred_batch_sizes),
            ("offline.batch_sizes", self.offline.batch_sizes),
            ("online.client_batch", (self.online.client_batch,)),
        ):
            if max(sizes, default=0) > limit:
                raise ValueError(f"{key}: {max(sizes)} is over serving.max_batch_size, {limit}")
        return self


class ModelSpec(Value):
    """`models/<name>/model.yaml`."""

    name: str
    description: str
    framework: Literal["torch"]
    requires: tuple[str, ...]
    opset: PositiveInt
    inputs: tuple[Tensor, ...] = Field(min_length=1)
    outputs: tuple[Tensor, ...] = Field(min_length=1)
    formats: dict[Format, FormatSpec]
    tolerances: dict[Precision, Tolerance]
    variants: dict[str, Variant]

    @model_validator(mode="after")
    def _complete(self) -> ModelSpec:
        used = {p for f in self.formats.values() for p in f.precisions}
        for missing in sorted(used - set(self.tolerances)):
            raise ValueError(f"tolerances: no entry for precision {missing!r}, which formats use")
        for name, variant in self.variants.items():
            for axis in (a for t in (*self.inputs, *self.outputs) for a in t.shape[1:]):
                if isinstance(axis, str) and not isinstance(variant.parameters.get(axis), int):
                    raise ValueError(
                        f"variants.{name}.parameters.{axis}: a whole number, for it is an axis (free: -1)"
                    )
            for missing in sorted(used - set(variant.metric.drop)):
                raise ValueError(f"variants.{name}.metric.drop: no entry for precision {missing!r}")
        return self

    def interface(self, parameters: dict[str, Scalar]) -> Interface:
        """Inputs and outputs with parameter names replaced by their numbers."""

        def resolve(tensor: Tensor) -> Tensor:
            axes = [_axis(a, parameters) for a in tensor.shape[1:]]
            return tensor.model_copy(update={"shape": (-1, *axes)})

        return Interface(inputs=tuple(map(resolve, self.inputs)), outputs=tuple(map(resolve, self.outputs)))


class ProfileRule(Value):
    """A format and precision that this device cannot run, and why."""

    format: Format
    precision: Precision
    reason: str


class GpuProfile(Value):
    """`gpu_profiles/<name>.yaml`: how to recognise a device, and what it can do."""

    name: str
    description: str
    device_kind: Literal["cpu", "gpu"]
    device_names: tuple[str, ...]
    pool: str
    precisions: tuple[Precision, ...]
    unsupported: tuple[ProfileRule, ...] = ()


def _axis(axis: int | str, parameters: dict[str, Scalar]) -> int:
    return axis if isinstance(axis, int) else int(parameters[axis])


def load_yaml(path: Path, kind: type[SpecT]) -> SpecT:
    """Read one YAML file as `kind`.

    Raises:
        UserError: not readable, not YAML, or a key or type is wrong: file, key, what was expected.
    """
    try:
        data: Any = yaml.safe_load(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError) as error:
        raise UserError(f"{path}: cannot be read: {error}") from error
    except (yaml.YAMLError, ValueError) as error:  # ValueError: a date that is none
        raise UserError(f"{path}: not valid YAML: {' '.join(str(error).split())}") from error
    if not isinstance(data, dict):
        raise UserError(f"{path}: expected a mapping of keys, found {type(data).__name__}")
    try:
        return kind.model_validate(data)
    except ValidationError as error:
        raise UserError(f"{path}: {explain(error, kind)}") from error


def explain(error: ValidationError, kind: type[Value]) -> str:
    """A pydantic error as `key: what was expected (found ...)`, entries parted by `; `."""
    entries = []
    for item in error.errors():
        where = ".".join(map(str, item["loc"])) or kind.__name__
        if item["type"] == "extra_forbidden":
            entries.append(f"{where}: no such key; take it out or correct its spelling")
        elif item["type"] == "missing":
            entries.append(f"{where}: this key is required")
        else:
            found = "" if isinstance(item["input"], dict) else f" (found {item['input']!r})"
            entries.append(f"{where}: {item['msg']}{found}")
    return "; ".join(entries)
