"""`tf-savedmodel`: a TensorFlow SavedModel, by Triton's tensorflow backend (up to 25.02) or hosted."""

from __future__ import annotations

from collections.abc import Mapping

from servegrid.domain.releases import Releases
from servegrid.domain.values import Accelerator, ExportFormat, Precision
from servegrid.formats.base import (
    CudaGraphs,
    OtherEnvironment,
    TorchJit,
    any_interface,
    every_version,
    nothing_more,
    of_the_export,
    uncalibrated,
)

EXPORT: ExportFormat = "tf-savedmodel"
PRECISIONS: tuple[Precision, ...] = ("fp32",)
UNBUILT: Mapping[Precision, str] = {}
TORCH_JIT: TorchJit = "none"
ENGINES = False
LIBRARIES: tuple[str, ...] = ("tensorflow",)
TOOLS: tuple[str, ...] = ()
ENVIRONMENT: OtherEnvironment | None = None
FILE = "model.savedmodel"
NATIVE_BACKEND = "tensorflow"
PLATFORM = "tensorflow_savedmodel"
ACCELERATORS: Mapping[Accelerator, tuple[Precision, ...]] = {"trt": ("fp32", "fp16"), "amp": ("fp32",)}
"""`amp` makes an fp32 graph fp16 where that is safe."""
SESSION: str | None = "savedmodel_session"
CUDA_GRAPHS: CudaGraphs = "none"
ON_DEVICE = False
source = of_the_export
calibrated = uncalibrated
why_not_native = any_interface
why_not_built_for = every_version
build_fields = nothing_more


def why_not_in_release(release: str, opset: int | None, known: Releases) -> str | None:
    """Later images have no tensorflow backend."""
    if release > known.last_tensorflow:
        return f"Triton {release} has no tensorflow backend; {known.last_tensorflow} is the last"
    return None
