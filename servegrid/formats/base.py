"""What a format's module has, and the answers that most of them give."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Protocol

from servegrid.domain.releases import Releases
from servegrid.domain.values import Accelerator, ExportFormat, Interface, Precision, Product, Value
from servegrid.host.environment import card

if TYPE_CHECKING:
    from servegrid.domain.spec import (
        ModelSpec,  # it reads EXPORT and PRECISIONS: not while it is being read itself
    )


TorchJit = Literal["none", "trace", "script"]
CudaGraphs = Literal["none", "fixed", "any"]


class OtherEnvironment(Value):
    """What a conversion needs that this environment cannot have: in words, and as distributions."""

    needs: str
    libraries: tuple[str, ...]


class FormatModule(Protocol):
    """What a format's module has."""

    EXPORT: ExportFormat
    """The export that it is made of."""
    PRECISIONS: tuple[Precision, ...]
    """The precisions in which it is built."""
    UNBUILT: Mapping[Precision, str]
    """Why not in another precision, where that is known."""
    TORCH_JIT: TorchJit
    """How TorchScript was made of the network; `none` for what is no TorchScript."""
    ENGINES: bool
    """Whether it holds engines of TensorRT, which are built for given ranges of shapes."""
    LIBRARIES: tuple[str, ...]
    """Distributions that converting and hosting need; their versions are in the cache key."""
    TOOLS: tuple[str, ...]
    """Programs that converting runs."""
    ENVIRONMENT: OtherEnvironment | None
    """What the environment must have that the profile names for converting; None: this one converts."""
    FILE: str
    """Name of the model file in the artifact, and in a native model repository."""
    NATIVE_BACKEND: str
    """Triton's backend for it."""
    PLATFORM: str
    """Which of the files that this backend runs it is, where there are several; else empty."""
    ACCELERATORS: Mapping[Accelerator, tuple[Precision, ...]]
    """The accelerators of that backend that act on it, and on which of its precisions (Triton, model
    configuration, "Optimization Policy")."""
    SESSION: str | None
    """The module of `servegrid.hosting` that runs it; None: only the native backend does."""
    CUDA_GRAPHS: CudaGraphs
    """Of which models that session captures CUDA graphs: of none, of those whose outputs have no free axis
    but the batch, or of any."""
    ON_DEVICE: bool
    """Whether it takes and gives tensors that lie on the GPU."""

    def why_not_native(self, interface: Interface, max_batch_size: int) -> str | None:
        """Why Triton's own backend could not serve this interface, in such batches, if it could not."""

    def why_not_in_release(self, release: str, opset: int | None, known: Releases) -> str | None:
        """Why the backend that a Triton release has could not, if it could not; `opset` is an ONNX graph's,
        `known` what is known of the releases."""

    def why_not_built_for(self, release: str, known: Releases, artifact: Path | None = None) -> str | None:
        """Why what was built, or what this environment would build, could not run in the backend of a Triton
        release that takes the format, if it could not."""

    def source(self, product: Product) -> Product | None:
        """The product that this one is converted from; None: its export."""

    def calibrated(self, product: Product) -> bool:
        """Whether the conversion to this product reads samples of the model's data."""

    def build_fields(self, spec: ModelSpec, product: Product) -> dict[str, Any]:
        """What the conversion reads beside its source, the precision and the tolerances."""


def any_interface(interface: Interface, max_batch_size: int) -> str | None:
    """The native backend takes any."""
    return None


def every_release(release: str, opset: int | None, known: Releases) -> str | None:
    """Every release has the backend, and it takes the format as it is made here."""
    return None


def every_version(release: str, known: Releases, artifact: Path | None = None) -> str | None:
    """A release runs whatever version of its libraries built it."""
    return None


def of_the_export(product: Product) -> Product | None:
    """It is converted from its export."""
    return None


def uncalibrated(product: Product) -> bool:
    """Its conversion reads no samples."""
    return False


def nothing_more(spec: ModelSpec, product: Product) -> dict[str, Any]:
    """Its conversion reads nothing else."""
    return {}


def engine_fields(spec: ModelSpec, product: Product) -> dict[str, Any]:
    """What engines depend on: shapes, workspace, and the card, where there is one, that they are built and
    proven on."""
    shapes = spec.engine_shapes(product.variant, product.parameters)
    return {
        "shapes": {name: range_.model_dump(mode="json") for name, range_ in shapes.items()},
        "workspace_bytes": spec.variants[product.variant].convert.workspace_bytes,
        "card": card(),
    }
