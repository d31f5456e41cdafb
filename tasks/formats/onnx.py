"""`onnx`: an ONNX graph, by Triton's onnxruntime backend or hosted."""

from __future__ import annotations

from typing import Any

from tasks.core.spec import ModelSpec
from tasks.core.values import Format, Interface, Product

MADE_OF: Format | None = None
CONVERT_STEP = "convert_onnx"
LIBRARIES: tuple[str, ...] = ("onnx", "onnxruntime")
FILE = "model.onnx"
NATIVE_BACKEND = "onnxruntime"
SESSION = "onnx_session"


def why_not_native(interface: Interface) -> str | None:
    """ONNX tensors have names of their own: any interface will do."""
    return None


def build_fields(spec: ModelSpec, product: Product) -> dict[str, Any]:
    """What converting to this product reads of `convert.onnx`.

    TensorRT does not know the operators that a transformer is fused into: with its accelerator the graph
    keeps ONNX's own. So does int8, for the quantizer does not know them either, and would leave their weights
    in float.
    """
    options = spec.variants[product.variant].convert.onnx
    if product.precision == "int8":
        return {"int8": options.int8.model_dump()}
    if product.precision == "fp32" and options.optimize and product.accelerator != "trt":
        return {"optimize": options.optimize.model_dump()}
    return {}
