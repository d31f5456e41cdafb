"""AOTInductor session of the hosted runtime."""

import json
from pathlib import Path

import torch

from ...hosting.torch_device import Tensors, TorchSession, as_tuple

MACHINE = "built_for.json"
"""The file with the instruction sets of the CPU that the package was compiled for."""


class Session(TorchSession):
    """`model.pt2` on the CPU; it takes and gives tensors in the interface's order."""

    def __init__(self, artifact: Path, kind: str, device: int = 0, cuda_graph: bool = False) -> None:
        machine = json.loads((artifact / MACHINE).read_text(encoding="utf-8"))
        reason = refusal(machine["instruction_sets"], kind)
        if reason:
            raise RuntimeError(reason)
        super().__init__(artifact, kind, device)
        self._run = torch._inductor.aoti_load_package(str(artifact / "model.pt2"))

    def compute(self, tensors: Tensors) -> Tensors:
        return as_tuple(self._run(*tensors))


def refusal(instruction_sets: list[str], kind: str) -> str | None:
    """Why the package must not run here: it would crash at an instruction that this CPU lacks."""
    if kind != "CPU":
        return f"the package was compiled for a CPU, not for KIND_{kind}"
    absent = sorted({*instruction_sets} - {*Path("/proc/cpuinfo").read_text(encoding="utf-8").split()})
    if absent:
        return f"the package was compiled for a CPU with {', '.join(absent)}, which this one lacks"
    return None
