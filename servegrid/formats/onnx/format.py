"""`onnx`: an ONNX graph, by Triton's onnxruntime backend or hosted."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from servegrid.domain.releases import Releases
from servegrid.domain.values import Accelerator, ExportFormat, Precision, Product
from servegrid.formats.base import CudaGraphs, OtherEnvironment, TorchJit, any_interface, every_version

if TYPE_CHECKING:
    from servegrid.domain.spec import ModelSpec

EXPORT: ExportFormat = "onnx"
PRECISIONS: tuple[Precision, ...] = ("fp32", "fp16", "int8")
UNBUILT: Mapping[Precision, str] = {"bf16": "ONNX Runtime's CPU provider lacks most operators in it"}
TORCH_JIT: TorchJit = "none"
ENGINES = False
LIBRARIES: tuple[str, ...] = ("onnx", "onnxruntime")
TOOLS: tuple[str, ...] = ()
ENVIRONMENT: OtherEnvironment | None = None
FILE = "model.onnx"
NATIVE_BACKEND = "onnxruntime"
PLATFORM = ""
ACCELERATORS: Mapping[Accelerator, tuple[Precision, ...]] = {"trt": ("fp32", "fp16")}
SESSION: str | None = "onnx_session"
CUDA_GRAPHS: CudaGraphs = "fixed"
ON_DEVICE = True
why_not_native = any_interface
why_not_built_for = every_version


def why_not_in_release(release: str, opset: int | None, known: Releases) -> str | None:
    """Its ONNX Runtime must know the graph's opset.

    The IR version needs no rule: a graph is written with the lowest that carries its opset
    (`servegrid.formats.onnx.writing`), and an ONNX Runtime that knows an opset knows that.
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
    """Half precision is made of the fp32 graph, which is fused where the model asks for it."""
    return product.model_copy(update={"precision": "fp32"}) if product.precision == "fp16" else None


def calibrated(product: Product) -> bool:
    """int8 takes the ranges of its tensors from samples."""
    return product.precision == "int8"


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
