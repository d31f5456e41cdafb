"""`aoti`: a package compiled by AOTInductor, hosted. (Triton's pytorch backend loads one from 26.03 on,
without batches above 1.)"""

from __future__ import annotations

from typing import Any

from tasks.core.environment import instruction_sets
from tasks.core.spec import ModelSpec
from tasks.core.values import Format, Interface, Product

MADE_OF: Format | None = None
CONVERT_STEP = "compile_package"
LIBRARIES: tuple[str, ...] = ("torch",)
FILE = "model.pt2"
NATIVE_BACKEND = "pytorch"
SESSION = "aoti_session"
TOOLS = ("g++",)


def why_not_native(interface: Interface) -> str | None:
    """Any interface will do; that it has no batches is a rule of the matrix."""
    return None


def build_fields(spec: ModelSpec, product: Product) -> dict[str, Any]:
    """What a package depends on beside its program: the machine that it is compiled for."""
    return {"machine": {"instruction_sets": instruction_sets()}}
