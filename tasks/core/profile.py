"""`gpu_profiles/*.yaml` as values."""

from __future__ import annotations

from typing import Literal

from tasks.core.values import Format, Precision, Value


class ProfileRule(Value):
    """A format that this device cannot run, in one precision or in any, and why."""

    format: Format
    precision: Precision | None = None
    reason: str


class GpuProfile(Value):
    """`gpu_profiles/<name>.yaml`: how to recognise a device, and what it can do."""

    name: str
    description: str
    device_kind: Literal["cpu", "gpu"]
    device_names: tuple[str, ...]
    pool: str
    precisions: tuple[Precision, ...]
    unsupported: tuple[ProfileRule, ...] = ()
