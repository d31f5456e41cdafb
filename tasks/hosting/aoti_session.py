"""AOTInductor session of the hosted runtime."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import torch

Array = np.ndarray[Any, Any]

MACHINE = "built_for.json"
"""The instruction sets of the CPU that a package was compiled for."""


class Session:
    """`model.pt2` on the CPU; it takes and gives tensors in the interface's order."""

    def __init__(self, artifact: Path, kind: str, device: int = 0, cuda_graph: bool = False) -> None:
        machine = json.loads((artifact / MACHINE).read_text(encoding="utf-8"))
        reason = refusal(machine["instruction_sets"], kind)
        if reason:
            raise RuntimeError(reason)
        self._run = torch._inductor.aoti_load_package(str(artifact / "model.pt2"))
        interface = json.loads((artifact / "interface.json").read_text(encoding="utf-8"))
        self._inputs = [tensor["name"] for tensor in interface["inputs"]]
        self._outputs = [tensor["name"] for tensor in interface["outputs"]]

    def run(self, inputs: dict[str, Array]) -> dict[str, Array]:
        """One batch; arrays by tensor name, batch first."""
        with torch.inference_mode():
            answer = self._run(*(torch.from_numpy(inputs[name]) for name in self._inputs))
        values = answer if isinstance(answer, tuple | list) else (answer,)
        return {n: v.numpy() for n, v in zip(self._outputs, values, strict=True)}


def refusal(instruction_sets: list[str], kind: str) -> str | None:
    """Why a package must not be run here: it would crash at an instruction that is not there."""
    if kind != "CPU":
        return f"the package was compiled for a CPU, not for KIND_{kind}"
    absent = sorted({*instruction_sets} - {*Path("/proc/cpuinfo").read_text(encoding="utf-8").split()})
    if absent:
        return f"the package was compiled for a CPU with {', '.join(absent)}, which this one lacks"
    return None
