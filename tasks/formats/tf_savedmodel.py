"""`tf-savedmodel`: a TensorFlow SavedModel, by Triton's tensorflow backend (up to 25.02) or hosted."""

from __future__ import annotations

from tasks.core.values import Format, Interface

MADE_OF: Format | None = None
CONVERT_STEP = "convert_savedmodel"
LIBRARIES: tuple[str, ...] = ("tensorflow",)
FILE = "model.savedmodel"
NATIVE_BACKEND = "tensorflow"
SESSION = "savedmodel_session"


def why_not_native(interface: Interface) -> str | None:
    """The signature names its tensors: any interface will do."""
    return None
