"""What Triton loads: one module a format, all of one shape, registered here by name."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

from tasks.core.spec import ModelSpec
from tasks.core.values import Format, Interface, Product
from tasks.formats import aoti, onnx, tf_savedmodel, trt, ts_script, ts_trace


class FormatModule(Protocol):
    """What a format's module has."""

    MADE_OF: Format | None
    """The format, at the same precision, that it is converted from; None: its export."""
    CONVERT_STEP: str
    """The step of `tasks.child` that makes it."""
    LIBRARIES: tuple[str, ...]
    """Distributions that converting and hosting need; their versions are in the cache key."""
    FILE: str
    """Name of the model file in the artifact, and in a native model repository."""
    NATIVE_BACKEND: str
    """Triton's backend for it."""
    SESSION: str
    """The module of `tasks.hosting` that runs it."""

    def why_not_native(self, interface: Interface) -> str | None:
        """Why Triton's own backend could not serve this interface, if it could not."""


FORMATS: dict[Format, FormatModule] = {
    "ts-trace": ts_trace,
    "ts-script": ts_script,
    "aoti": aoti,
    "onnx": onnx,
    "trt": trt,
    "tf-savedmodel": tf_savedmodel,
}

BUILD_FIELDS: dict[Format, Callable[[ModelSpec, Product], dict[str, Any]]] = {
    "aoti": aoti.build_fields,
    "onnx": onnx.build_fields,
    "trt": trt.build_fields,
}
"""What converting to a format reads beside its source, the precision and the tolerances."""

TOOLS: dict[Format, tuple[str, ...]] = {"aoti": aoti.TOOLS}
"""Programs that converting to a format runs."""
