"""`aoti`: a package compiled by AOTInductor, hosted. (Triton's pytorch backend loads one from 26.03 on,
without batches above 1.)"""

from __future__ import annotations

from typing import Any

from servegrid.domain.releases import Releases
from servegrid.domain.spec import ModelSpec
from servegrid.domain.values import Interface, Product
from servegrid.formats.base import HostedSession, NativeBackend, ServingFormat
from servegrid.host.environment import instruction_sets


def why_not_native(interface: Interface, max_batch_size: int) -> str | None:
    """The backend takes any interface, without batches."""
    return "the pytorch backend runs aoti without batching only" if max_batch_size > 1 else None


def why_not_in_release(release: str, opset: int | None, known: Releases) -> str | None:
    """Older releases do not know the platform `torch_aoti`."""
    if release < known.first_torch_aoti:
        return f"Triton {release} has no native aoti; {known.first_torch_aoti} is the first with it"
    return None


def build_fields(spec: ModelSpec, product: Product) -> dict[str, Any]:
    """The machine that the package is compiled for."""
    return {"machine": {"instruction_sets": instruction_sets()}}


AOTI = ServingFormat(
    export="torch-export",
    precisions=("fp32",),
    unbuilt={
        "fp16": "packages are compiled for CPUs only (docs/experiments/aoti-and-fp8-on-a-card.md)",
    },
    libraries=("torch",),
    tools=("g++",),
    build_fields=build_fields,
    file="model.pt2",
    native=NativeBackend(
        name="pytorch",
        platform="torch_aoti",
        why_not=why_not_native,
        why_not_in_release=why_not_in_release,
    ),
    hosted=HostedSession(folder="aoti"),
)
