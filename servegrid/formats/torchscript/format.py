"""`ts-trace` and `ts-script`: a traced or scripted TorchScript module, run by Triton's pytorch backend or
hosted."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

from servegrid.domain.spec import ModelSpec
from servegrid.domain.values import Interface, Product
from servegrid.formats.base import HostedSession, NativeBackend, ServingFormat


def why_not_native(interface: Interface, max_batch_size: int) -> str | None:
    """TorchScript's outputs have no names: the backend reads their positions from `NAME__i`.

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


def scripted_fields(spec: ModelSpec, product: Product) -> dict[str, Any]:
    """bf16 of a scripted module is made in another way than of a traced one."""
    return {"scripted": True} if product.precision == "bf16" else {}


TS_TRACE = ServingFormat(
    export="ts-trace",
    precisions=("fp32", "fp16", "bf16"),
    libraries=("torch",),
    file="model.pt",
    native=NativeBackend(name="pytorch", platform="pytorch_libtorch", why_not=why_not_native),
    hosted=HostedSession(folder="torchscript", cuda_graphs="any", on_device=True),
)

TS_SCRIPT = replace(TS_TRACE, export="ts-script", build_fields=scripted_fields)
