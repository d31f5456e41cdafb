"""`trt`: a TensorRT engine, by Triton's tensorrt backend or hosted; a TensorRT-RTX one is hosted only.

Networks are strongly typed: the precision is that of the ONNX graph that the engine is built from.
"""

from __future__ import annotations

from typing import Any

from tasks.core.environment import card, provider
from tasks.core.spec import ModelSpec
from tasks.core.values import Format, Interface, Product

MADE_OF: Format | None = "onnx"
CONVERT_STEP = "convert_tensorrt"
LIBRARIES: tuple[str, ...] = ("tensorrt", "torch")
FILE = "model.plan"
NATIVE_BACKEND = "tensorrt"
SESSION = "trt_session"


def library() -> str:
    """`tensorrt` or `tensorrt-rtx`, whichever builds here; where both are installed, the first."""
    return "tensorrt-rtx" if "rtx" in (provider("tensorrt") or "") else "tensorrt"


def why_not_native(interface: Interface) -> str | None:
    """Triton's backend links TensorRT; engines of TensorRT-RTX are in a format of their own."""
    if library() == "tensorrt-rtx":
        return "Triton's tensorrt backend does not run engines of TensorRT-RTX; they are hosted"
    return None


def build_fields(spec: ModelSpec, product: Product) -> dict[str, Any]:
    """What an engine depends on beside its graph: library, shapes, workspace, and the card, where there is
    one, that it is built and proven on. (An engine of TensorRT-RTX is for many cards; its proof is not.)"""
    shapes = spec.engine_shapes(product.variant, product.parameters)
    return {
        "library": library(),
        "shapes": {name: range_.model_dump(mode="json") for name, range_ in shapes.items()},
        "workspace_bytes": spec.variants[product.variant].convert.workspace_bytes,
        "card": card(),
    }
