"""What the project knows of a serving format: how it is made, and what serves it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from servegrid.domain.releases import Releases
from servegrid.domain.spec import ModelSpec
from servegrid.domain.values import Accelerator, ExportFormat, Interface, Precision, Product, Value
from servegrid.host.cards import card

TorchJit = Literal["none", "trace", "script"]
CudaGraphs = Literal["none", "fixed", "any"]

TORCH_JIT: Mapping[ExportFormat, TorchJit] = {"ts-trace": "trace", "ts-script": "script"}


class OtherEnvironment(Value):
    """A requirement that the project's own environment cannot meet: in words, and as distributions."""

    needs: str
    libraries: tuple[str, ...]


def no_reason(*_: object) -> None:
    """Nothing speaks against it."""


@dataclass(frozen=True, kw_only=True)
class NativeBackend:
    """Triton's own backend for a format. Each function gives the reason why it cannot serve, or None."""

    name: str
    platform: str = ""
    """Triton's `platform`, for a backend that runs several kinds of files."""
    accelerators: Mapping[Accelerator, tuple[Precision, ...]] = field(default_factory=dict)
    """The execution accelerators that act on the format, each with the precisions that it takes (Triton,
    model configuration, "Optimization Policy")."""
    why_not: Callable[[Interface, int], str | None] = no_reason
    """Of an interface and a maximum batch size."""
    why_not_in_release: Callable[[str, int | None, Releases], str | None] = no_reason
    """Of a Triton release, an ONNX graph's opset and the known releases."""
    why_not_built_for: Callable[[str, Releases, Path | None], str | None] = no_reason
    """Of a Triton release that takes the format, the known releases and an artifact; without an artifact
    the answer is for what this environment would build."""


@dataclass(frozen=True, kw_only=True)
class HostedSession:
    """The session that runs a format in Triton's Python backend: `session.py` of a folder of formats/."""

    folder: str
    cuda_graphs: CudaGraphs = "none"
    """The models for which it captures CUDA graphs; `fixed`: those whose outputs have no free axis but the
    batch."""
    on_device: bool = False
    """Whether it takes and gives tensors in GPU memory."""


def from_export(product: Product) -> Product | None:
    """The product is converted from its export."""
    return None


def no_fields(spec: ModelSpec, product: Product) -> dict[str, Any]:
    """The conversion reads nothing else."""
    return {}


def engine_fields(spec: ModelSpec, product: Product) -> dict[str, Any]:
    """What engines depend on: shapes, workspace, and this host's card, where there is one."""
    shapes = spec.engine_shapes(product.variant, product.parameters)
    return {
        "shapes": {name: range_.model_dump(mode="json") for name, range_ in shapes.items()},
        "workspace_bytes": spec.variants[product.variant].convert.workspace_bytes,
        "card": card(),
    }


@dataclass(frozen=True, kw_only=True)
class ServingFormat:
    """One format: what it is made of, how, and what serves it."""

    export: ExportFormat
    """The export that it is converted from."""
    precisions: tuple[Precision, ...]
    """The precisions in which it is built."""
    unbuilt: Mapping[Precision, str] = field(default_factory=dict)
    """Known reasons why it is not built in other precisions."""
    libraries: tuple[str, ...] = ()
    """Distributions that converting and hosting need; their versions are in the cache key."""
    tools: tuple[str, ...] = ()
    """Programs that converting runs."""
    environment: OtherEnvironment | None = None
    """What an environment named in the profile must have for converting; None: this environment converts."""
    engines: bool = False
    """Whether it holds TensorRT engines, which are built for given ranges of shapes."""
    calibrated: tuple[Precision, ...] = ()
    """The precisions whose conversion reads samples of the model's data."""
    source: Callable[[Product], Product | None] = from_export
    """The product that a product is converted from; None: its export."""
    build_fields: Callable[[ModelSpec, Product], dict[str, Any]] = no_fields
    """What the conversion reads besides its source, the precision and the tolerances."""
    file: str
    """Name of the model file in the artifact, and in a native model repository."""
    native: NativeBackend
    hosted: HostedSession | None = None
    """None: only the native backend runs it."""

    @property
    def torch_jit(self) -> TorchJit:
        """How TorchScript was made of the network; `none` for what is no TorchScript."""
        return TORCH_JIT.get(self.export, "none")
