"""`ts-trace`: a traced TorchScript module, by Triton's pytorch backend or hosted."""

from __future__ import annotations

import re

from tasks.core.values import Format, Interface

MADE_OF: Format | None = None
CONVERT_STEP = "convert_torchscript"
LIBRARIES: tuple[str, ...] = ("torch",)
FILE = "model.pt"
NATIVE_BACKEND = "pytorch"
SESSION = "torchscript_session"


def why_not_native(interface: Interface) -> str | None:
    """Outputs of TorchScript have no names: the backend reads their positions from `NAME__i`.

    The server checks this only when it loads the model, and not completely; so it is checked here.
    (Triton, model configuration, "Special Conventions for PyTorch Backend".)
    """
    for tensors in (interface.inputs, interface.outputs):
        for position, tensor in enumerate(tensors):
            if not re.fullmatch(rf".+__{position}", tensor.name):
                return (
                    f"the pytorch backend needs tensor {position} named NAME__{position}, not {tensor.name!r}"
                )
    return None
