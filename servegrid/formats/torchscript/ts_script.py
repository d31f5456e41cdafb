"""`ts-script`: a scripted TorchScript module; served as a traced one is."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from servegrid.domain.values import ExportFormat, Precision, Product
from servegrid.formats.base import TorchJit
from servegrid.formats.torchscript.ts_trace import (
    ACCELERATORS,
    CUDA_GRAPHS,
    ENGINES,
    ENVIRONMENT,
    FILE,
    LIBRARIES,
    NATIVE_BACKEND,
    ON_DEVICE,
    PLATFORM,
    SESSION,
    TOOLS,
    UNBUILT,
    calibrated,
    source,
    why_not_built_for,
    why_not_in_release,
    why_not_native,
)

if TYPE_CHECKING:
    from servegrid.domain.spec import ModelSpec

__all__ = [
    "ACCELERATORS", "CUDA_GRAPHS", "ENGINES", "ENVIRONMENT", "EXPORT", "FILE", "LIBRARIES",
    "NATIVE_BACKEND", "ON_DEVICE", "PLATFORM", "PRECISIONS", "SESSION", "TOOLS", "TORCH_JIT", "UNBUILT",
    "build_fields", "calibrated", "source", "why_not_built_for", "why_not_in_release", "why_not_native",
]  # fmt: skip

EXPORT: ExportFormat = "ts-script"
PRECISIONS: tuple[Precision, ...] = ("fp32", "fp16", "bf16")
TORCH_JIT: TorchJit = "script"


def build_fields(spec: ModelSpec, product: Product) -> dict[str, Any]:
    """That it is scripted: bf16 is made otherwise than of a traced module."""
    return {"scripted": True} if product.precision == "bf16" else {}
