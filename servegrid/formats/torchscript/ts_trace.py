"""`ts-trace`: a traced TorchScript module, by Triton's pytorch backend or hosted."""

from __future__ import annotations

import re
from collections.abc import Mapping

from servegrid.domain.values import Accelerator, ExportFormat, Interface, Precision
from servegrid.formats.base import (
    CudaGraphs,
    OtherEnvironment,
    TorchJit,
    every_release,
    every_version,
    nothing_more,
    of_the_export,
    uncalibrated,
)

EXPORT: ExportFormat = "ts-trace"
PRECISIONS: tuple[Precision, ...] = ("fp32", "fp16", "bf16")
UNBUILT: Mapping[Precision, str] = {}
TORCH_JIT: TorchJit = "trace"
ENGINES = False
LIBRARIES: tuple[str, ...] = ("torch",)
TOOLS: tuple[str, ...] = ()
ENVIRONMENT: OtherEnvironment | None = None
FILE = "model.pt"
NATIVE_BACKEND = "pytorch"
PLATFORM = "pytorch_libtorch"
ACCELERATORS: Mapping[Accelerator, tuple[Precision, ...]] = {}
SESSION: str | None = "torchscript_session"
CUDA_GRAPHS: CudaGraphs = "any"
ON_DEVICE = True
source = of_the_export
calibrated = uncalibrated
why_not_in_release = every_release
why_not_built_for = every_version
build_fields = nothing_more


def why_not_native(interface: Interface, max_batch_size: int) -> str | None:
    """Outputs of TorchScript have no names: the backend reads their positions from `NAME__i`.

    The server checks this only when it loads the model, and not completely; so it is checked here.
    (Triton, model configuration, "Special Conventions for PyTorch Backend".)
    """
    for tensors in (interface.inputs, interface.outputs):
        for position, tensor in enumerate(tensors):
            if not re.fullmatch(rf".+__{position}", tensor.name):
                return (
                    f"the pytorch backend needs tensor {position} named NAME__{position}, not {tensor.name!r}"
                )
    return None
