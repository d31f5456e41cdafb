"""`aoti`: a package compiled by AOTInductor, hosted. (Triton's pytorch backend loads one from 26.03 on,
without batches above 1.)"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from servegrid.domain.releases import Releases
from servegrid.domain.values import Accelerator, ExportFormat, Interface, Precision, Product
from servegrid.formats.base import (
    CudaGraphs,
    OtherEnvironment,
    TorchJit,
    every_version,
    of_the_export,
    uncalibrated,
)
from servegrid.host.environment import instruction_sets

if TYPE_CHECKING:
    from servegrid.domain.spec import ModelSpec

EXPORT: ExportFormat = "torch-export"
PRECISIONS: tuple[Precision, ...] = ("fp32",)
UNBUILT: Mapping[Precision, str] = {
    "fp16": "compiled for a GPU its package crashes as it is loaded (seen with torch 2.11 and CUDA 13.0)"
}
TORCH_JIT: TorchJit = "none"
ENGINES = False
LIBRARIES: tuple[str, ...] = ("torch",)
TOOLS: tuple[str, ...] = ("g++",)
ENVIRONMENT: OtherEnvironment | None = None
FILE = "model.pt2"
NATIVE_BACKEND = "pytorch"
PLATFORM = "torch_aoti"
ACCELERATORS: Mapping[Accelerator, tuple[Precision, ...]] = {}
SESSION: str | None = "aoti_session"
CUDA_GRAPHS: CudaGraphs = "none"
ON_DEVICE = False
source = of_the_export
calibrated = uncalibrated
why_not_built_for = every_version


def why_not_native(interface: Interface, max_batch_size: int) -> str | None:
    """Any interface will do, without batches."""
    return "the pytorch backend runs aoti without batching only" if max_batch_size > 1 else None


def why_not_in_release(release: str, opset: int | None, known: Releases) -> str | None:
    """The platform `torch_aoti` came late."""
    if release < known.first_torch_aoti:
        return f"Triton {release} has no native aoti; {known.first_torch_aoti} is the first with it"
    return None


def build_fields(spec: ModelSpec, product: Product) -> dict[str, Any]:
    """What a package depends on beside its program: the machine that it is compiled for."""
    return {"machine": {"instruction_sets": instruction_sets()}}
