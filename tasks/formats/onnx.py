"""`onnx`: an ONNX graph, by Triton's onnxruntime backend or hosted."""

from __future__ import annotations

from tasks.core.values import Format, Interface

MADE_OF: Format | None = None
CONVERT_STEP = "convert_onnx"
LIBRARIES: tuple[str, ...] = ("onnx", "onnxruntime")
FILE = "model.onnx"
NATIVE_BACKEND = "onnxruntime"
SESSION = "onnx_session"


def why_not_native(interface: Interface) -> str | None:
    """ONNX tensors have names of their own: any interface will do."""
    return None
