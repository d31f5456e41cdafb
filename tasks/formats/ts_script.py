"""`ts-script`: a scripted TorchScript module; served as a traced one is."""

from __future__ import annotations

from typing import Literal

from tasks.core.values import ExportFormat, Precision
from tasks.formats.ts_trace import (
    ACCELERATORS,
    CONVERT_STEP,
    CUDA_GRAPHS,
    ENGINES,
    ENVIRONMENT,
    FILE,
    LIBRARIES,
    NATIVE_BACKEND,
    PLATFORM,
    SESSION,
    TOOLS,
    build_fields,
    calibrated,
    source,
    why_not_in_release,
    why_not_native,
)

__all__ = [
    "ACCELERATORS", "CONVERT_STEP", "CUDA_GRAPHS", "ENGINES", "ENVIRONMENT", "EXPORT", "FILE", "LIBRARIES",
    "NATIVE_BACKEND", "PLATFORM", "PRECISIONS", "SESSION", "TOOLS", "TORCH_JIT", "build_fields", "calibrated",
    "source", "why_not_in_release", "why_not_native",
]  # fmt: skip

EXPORT: ExportFormat = "ts-script"
PRECISIONS: tuple[Precision, ...] = ("fp32", "fp16")
"""A scripted module cannot be traced behind float32 inputs, as bf16 would need."""
TORCH_JIT: Literal["none", "trace", "script"] = "script"
