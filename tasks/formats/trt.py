"""`trt`: a TensorRT engine, by Triton's tensorrt backend or hosted; a TensorRT-RTX one is hosted only.

Networks are strongly typed: the precision is that of the ONNX graph that the engine is built from.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Literal

from tasks.core.environment import provider
from tasks.core.values import Accelerator, ExportFormat, Interface, Precision, Product
from tasks.formats.base import OtherEnvironment, engine_fields, every_release, uncalibrated

if TYPE_CHECKING:
    from tasks.core.spec import ModelSpec

EXPORT: ExportFormat = "onnx"
PRECISIONS: tuple[Precision, ...] = ("fp32", "fp16", "int8")
TORCH_JIT: Literal["none", "trace", "script"] = "none"
ENGINES = True
CONVERT_STEP = "convert_tensorrt"
LIBRARIES: tuple[str, ...] = ("tensorrt", "torch")
TOOLS: tuple[str, ...] = ()
ENVIRONMENT: OtherEnvironment | None = None
FILE = "model.plan"
NATIVE_BACKEND = "tensorrt"
PLATFORM = ""
ACCELERATORS: Mapping[Accelerator, tuple[Precision, ...]] = {}
SESSION: str | None = "trt_session"
CUDA_GRAPHS = False
ON_DEVICE = False
calibrated = uncalibrated
why_not_in_release = every_release


def library() -> str:
    """`tensorrt` or `tensorrt-rtx`, whichever builds here; where both are installed, the first."""
    return "tensorrt-rtx" if "rtx" in (provider("tensorrt") or "") else "tensorrt"


def why_not_native(interface: Interface, max_batch_size: int) -> str | None:
    """Triton's backend links TensorRT; engines of TensorRT-RTX are in a format of their own."""
    if library() == "tensorrt-rtx":
        return "Triton's tensorrt backend does not run engines of TensorRT-RTX; they are hosted"
    return None


def source(product: Product) -> Product | None:
    """The ONNX graph of the same precision, made for TensorRT."""
    return product.model_copy(update={"format": "onnx", "accelerator": "trt"})


def build_fields(spec: ModelSpec, product: Product) -> dict[str, Any]:
    """What an engine depends on beside its graph: the library, too. (An engine of TensorRT-RTX is for many
    cards; its proof is not.)"""
    return {"library": library(), **engine_fields(spec, product)}
