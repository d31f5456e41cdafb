"""`onnx`: an ONNX graph, run by Triton's onnxruntime backend or hosted."""

from __future__ import annotations

from typing import Any

from servegrid.domain.releases import Releases
from servegrid.domain.spec import ModelSpec
from servegrid.domain.values import Product
from servegrid.formats.base import HostedSession, NativeBackend, ServingFormat


def why_not_in_release(release: str, opset: int | None, known: Releases) -> str | None:
    """The release's ONNX Runtime must know the graph's opset.

    The IR version needs no rule: a graph is written with the lowest that carries its opset
    (`servegrid.formats.onnx.writing`), and an ONNX Runtime that knows an opset knows that IR version.
    """
    found = known.releases.get(release)
    if opset is None:
        return None
    if found is None or found.onnx_opset is None:
        return f"it is not known which ONNX opset Triton {release} takes; triton_releases.yaml may say it"
    if opset > found.onnx_opset:
        return (
            f"Triton {release} has ONNX Runtime {found.onnxruntime}, which takes opsets up to "
            f"{found.onnx_opset}; model.yaml says opset {opset}"
        )
    return None


def source(product: Product) -> Product | None:
    """fp16 is made of the fp32 graph, which is fused where the model asks for it."""
    return product.model_copy(update={"precision": "fp32"}) if product.precision == "fp16" else None


def build_fields(spec: ModelSpec, product: Product) -> dict[str, Any]:
    """The part of `convert.onnx` that this product needs.

    TensorRT does not know the operators that a transformer is fused into, so with its accelerator the graph
    keeps ONNX's own. int8 does too: the quantizer does not know them either and would leave their weights
    in float.
    """
    options = spec.variants[product.variant].convert.onnx
    if product.precision == "int8":
        return {"int8": options.int8.model_dump()}
    if product.precision == "fp32" and options.optimize and product.accelerator != "trt":
        return {"optimize": options.optimize.model_dump()}
    return {}


ONNX = ServingFormat(
    export="onnx",
    precisions=("fp32", "fp16", "int8"),
    unbuilt={"bf16": "ONNX Runtime's CPU provider lacks most operators in it"},
    libraries=("onnx", "onnxruntime"),
    calibrated=("int8",),
    source=source,
    build_fields=build_fields,
    file="model.onnx",
    native=NativeBackend(
        name="onnxruntime",
        accelerators={"trt": ("fp32", "fp16")},
        why_not_in_release=why_not_in_release,
    ),
    hosted=HostedSession(folder="onnx", cuda_graphs="fixed", on_device=True),
)
