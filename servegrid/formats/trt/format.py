"""`trt`: a TensorRT engine, run by Triton's tensorrt backend or hosted; TensorRT-RTX engines are hosted only.

Networks are strongly typed: the precision is that of the ONNX graph that the engine is built from.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from packaging.version import Version

from servegrid.domain.releases import Releases
from servegrid.domain.spec import ModelSpec
from servegrid.domain.values import Interface, Product
from servegrid.formats.base import HostedSession, NativeBackend, ServingFormat, engine_fields
from servegrid.host.environment import provider, versions


def library() -> str:
    """`tensorrt` or `tensorrt-rtx`, whichever builds here; where both are installed, the first."""
    return "tensorrt-rtx" if "rtx" in (provider("tensorrt") or "") else "tensorrt"


def why_not_native(interface: Interface, max_batch_size: int) -> str | None:
    """Triton's backend links TensorRT; engines of TensorRT-RTX have another file format."""
    if library() == "tensorrt-rtx":
        return "Triton's tensorrt backend does not run engines of TensorRT-RTX; they are hosted"
    return None


def why_not_in_release(release: str, opset: int | None, known: Releases) -> str | None:
    """The release's TensorRT must be known: an engine is bound to one version (TensorRT, "Engine
    Compatibility")."""
    if library() == "tensorrt-rtx":
        return None  # no release runs them, as why_not_native says
    if _version_in(release, known) is None:
        return f"it is not known which TensorRT Triton {release} has; triton_releases.yaml may say it"
    return None


def why_not_built_for(release: str, known: Releases, artifact: Path | None) -> str | None:
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
    """Whether two versions agree in the parts that both have: 7.2.2 and 7.2.2.3 do."""
    return all(a == b for a, b in zip(Version(one).release, Version(other).release, strict=False))


def source(product: Product) -> Product | None:
    """The ONNX graph of the same precision, made for TensorRT."""
    return product.model_copy(update={"format": "onnx", "accelerator": "trt"})


def build_fields(spec: ModelSpec, product: Product) -> dict[str, Any]:
    """The library, and what every engine depends on. (An engine of TensorRT-RTX runs on many cards, but it is
    proven on one.)"""
    return {"library": library(), **engine_fields(spec, product)}


TRT = ServingFormat(
    export="onnx",
    precisions=("fp32", "fp16", "int8"),
    libraries=("tensorrt", "torch"),
    engines=True,
    source=source,
    build_fields=build_fields,
    file="model.plan",
    native=NativeBackend(
        name="tensorrt",
        why_not=why_not_native,
        why_not_in_release=why_not_in_release,
        why_not_built_for=why_not_built_for,
    ),
    hosted=HostedSession(folder="trt"),
)
