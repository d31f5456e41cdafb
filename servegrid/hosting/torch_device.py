"""The base of the PyTorch sessions: their device, and copies of tensors to it and back."""

import json
from abc import ABC, abstractmethod
from pathlib import Path
from typing import Any

import numpy as np
import torch

from .outputs import THROUGH_HOST

Array = np.ndarray[Any, Any]
Tensors = tuple[torch.Tensor, ...]


class TorchSession(ABC):
    """Runs `compute`, which the session of a format defines, on one device."""

    def __init__(self, artifact: Path, kind: str, device: int) -> None:
        """Raises RuntimeError if `kind` is GPU and PyTorch sees none."""
        if kind == "GPU" and not torch.cuda.is_available():
            raise RuntimeError("PyTorch sees no GPU: is a torch build with CUDA installed?")
        self.device = torch.device("cuda", device) if kind == "GPU" else torch.device("cpu")
        if kind == "GPU":
            torch.cuda.set_device(device)  # graphs and streams belong to the current device
            torch.backends.cudnn.allow_tf32 = False  # fp32 is fp32
            # CPU threads only copy here, and one is faster than sixteen that wait for one another.
            torch.set_num_threads(1)
        interface = json.loads((artifact / "interface.json").read_text(encoding="utf-8"))
        self.inputs = [tensor["name"] for tensor in interface["inputs"]]
        self.outputs = [tensor["name"] for tensor in interface["outputs"]]
        axes = [axis for tensor in interface["inputs"] for axis in tensor["shape"][1:]]
        self.fixed = -1 not in axes
        self.ranks = {len(tensor["shape"]) for tensor in interface["inputs"]}
        # cuDNN tries its algorithms at the first run of each shape, which pays where shapes repeat.
        torch.backends.cudnn.benchmark = self.fixed

    @abstractmethod
    def compute(self, tensors: Tensors) -> Tensors:
        """Outputs on the device, in the interface's order. Inputs are on it or in the host's memory; on a GPU
        the outputs are valid until the next call."""

    def to_device(self, tensor: torch.Tensor) -> torch.Tensor:
        """The tensor on the device; to a GPU it is copied through pinned memory."""
        if self.device == tensor.device:
            return tensor
        return tensor.pin_memory().to(self.device, non_blocking=True)

    def run(self, inputs: dict[str, Array]) -> dict[str, Array]:
        """One batch; arrays by tensor name, batch first."""
        with torch.inference_mode():
            values = self.compute(tuple(torch.from_numpy(inputs[name]) for name in self.inputs))
            if self.device.type != "cpu":
                values = _to_host(values)
        return {n: v.numpy() for n, v in zip(self.outputs, values, strict=True)}

    def run_on_device(self, inputs: dict[str, Any]) -> dict[str, Array] | dict[str, torch.Tensor]:
        """One batch of tensors on the GPU, given by DLPack; large outputs stay there, valid until the next
        run."""
        with torch.inference_mode():
            values = self.compute(tuple(torch.from_dlpack(inputs[name]) for name in self.inputs))
            if sum(value.nbytes for value in values) <= THROUGH_HOST:
                return {n: v.numpy() for n, v in zip(self.outputs, _to_host(values), strict=True)}
            values = tuple(value.contiguous() for value in values)
            torch.cuda.current_stream().synchronize()
        return dict(zip(self.outputs, values, strict=True))


def as_tuple(answer: Any) -> Tensors:
    """The result of a forward, one tensor or several, as a tuple."""
    if isinstance(answer, dict):
        return tuple(answer.values())
    return tuple(answer) if isinstance(answer, tuple | list) else (answer,)


def _to_host(values: Tensors) -> Tensors:
    answers = tuple(torch.empty(v.shape, dtype=v.dtype, pin_memory=True) for v in values)
    for answer, value in zip(answers, values, strict=True):
        answer.copy_(value, non_blocking=True)
    torch.cuda.current_stream().synchronize()
    return answers
