"""`ts-script`: a scripted TorchScript module; served as a traced one is."""

from __future__ import annotations

from tasks.formats.ts_trace import (
    CONVERT_STEP,
    FILE,
    LIBRARIES,
    MADE_OF,
    NATIVE_BACKEND,
    SESSION,
    why_not_native,
)

__all__ = ["CONVERT_STEP", "FILE", "LIBRARIES", "MADE_OF", "NATIVE_BACKEND", "SESSION", "why_not_native"]
