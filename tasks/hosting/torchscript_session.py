"""TorchScript session of the hosted runtime."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import torch

Array = np.ndarray[Any, Any]


class Session:
    """`model.pt` on one device; its forward takes and gives tensors in the interface's order."""

    def __init__(self, artifact: Path, kind: str) -> None:
        if kind == "GPU" and not torch.cuda.is_available():
            raise RuntimeError("PyTorch sees no GPU: is a torch build with CUDA installed?")
        self._device = "cuda" if kind == "GPU" else "cpu"
        self._module = torch.jit.load(str(artifact / "model.pt"), map_location=self._device).eval()
        interface = json.loads((artifact / "interface.json").read_text(encoding="utf-8"))
        self._inputs = [tensor["name"] for tensor in interface["inputs"]]
        self._outputs = [tensor["name"] for tensor in interface["outputs"]]

    def run(self, inputs: dict[str, Array]) -> dict[str, Array]:
        """One batch; arrays by tensor name, batch first."""
        with torch.inference_mode():
            tensors = [torch.from_numpy(inputs[name]).to(self._device) for name in self._inputs]
            answer = self._module(*tensors)
        values = answer if isinstance(answer, tuple | list) else (answer,)
        return {n: v.cpu().numpy() for n, v in zip(self._outputs, values, strict=True)}
