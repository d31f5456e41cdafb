"""`trt`: a TensorRT engine, by Triton's tensorrt backend or hosted; a TensorRT-RTX one is hosted only.

Networks are strongly typed: the precision is that of the ONNX graph that the engine is built from.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from packaging.version import Version

from servegrid.domain.releases import Releases
from servegrid.domain.values import Accelerator, ExportFormat, Interface, Precision, Product
from servegrid.formats.base import CudaGraphs, OtherEnvironment, TorchJit, engine_fields, uncalibrated
from servegrid.host.environment import provider, versions

if TYPE_CHECKING:
    from servegrid.domain.spec import ModelSpec

EXPORT: ExportFormat = "onnx"
PRECISIONS: tuple[Precision, ...] = ("fp32", "fp16", "int8")
UNBUILT: Mapping[Precision, str] = {}
TORCH_JIT: TorchJit = "none"
ENGINES = True
LIBRARIES: tuple[str, ...] = ("tensorrt", "torch")
TOOLS: tuple[str, ...] = ()
ENVIRONMENT: OtherEnvironment | None = None
FILE = "model.plan"
NATIVE_BACKEND = "tensorrt"
PLATFORM = ""
ACCELERATORS: Mapping[Accelerator, tuple[Precision, ...]] = {}
SESSION: str | None = "trt_session"
CUDA_GRAPHS: CudaGraphs = "none"
ON_DEVICE = False
calibrated = uncalibrated


def library() -> str:
    """`tensorrt` or `tensorrt-rtx`, whichever builds here; where both are installed, the first."""
    return "tensorrt-rtx" if "rtx" in (provider("tensorrt") or "") else "tensorrt"


def why_not_native(interface: Interface, max_batch_size: int) -> str | None:
    """Triton's backend links TensorRT; engines of TensorRT-RTX are in a format of their own."""
    if library() == "tensorrt-rtx":
        return "Triton's tensorrt backend does not run engines of TensorRT-RTX; they are hosted"
    return None


def why_not_in_release(release: str, opset: int | None, known: Releases) -> str | None:
    """It must be known which TensorRT it has: engines are bound to one (TensorRT, "Engine Compatibility")."""
    if library() == "tensorrt-rtx":
        return None  # for another reason none runs them
    if _version_in(release, known) is None:
        return f"it is not known which TensorRT Triton {release} has; triton_releases.yaml may say it"
    return None


def why_not_built_for(release: str, known: Releases, artifact: Path | None = None) -> str | None:
    """The TensorRT that built the engine, or would build it here, must be that of the release."""
    has, built = _version_in(release, known), _installed()
    if artifact:
        built = str(json.loads((artifact / "engine.json").read_text(encoding="utf-8"))["version"])
    if has is None or built is None or _same(has, built):
        return None
    return (
        f"Triton {release} has TensorRT {has}, and runs no engine that TensorRT {built} builds: name an "
        "environment with the former in the profile, `environments: {trt: /path/to/environment}`"
    )


def _version_in(release: str, known: Releases) -> str | None:
    found = known.releases.get(release)
    return found.tensorrt if found else None


def _installed() -> str | None:
    """The version of TensorRT that builds here."""
    if provider("tensorrt") is None or library() == "tensorrt-rtx":
        return None
    return versions(("tensorrt",))["tensorrt"]


def _same(one: str, other: str) -> bool:
    """Whether two versions agree in the parts that both tell: 7.2.2 and 7.2.2.3 do."""
    return all(a == b for a, b in zip(Version(one).release, Version(other).release, strict=False))


def source(product: Product) -> Product | None:
    """The ONNX graph of the same precision, made for TensorRT."""
    return product.model_copy(update={"format": "onnx", "accelerator": "trt"})


def build_fields(spec: ModelSpec, product: Product) -> dict[str, Any]:
    """What an engine depends on beside its graph: the library, too. (An engine of TensorRT-RTX is for many
    cards; its proof is not.)"""
    return {"library": library(), **engine_fields(spec, product)}
