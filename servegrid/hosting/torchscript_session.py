"""TorchScript session of the hosted runtime."""

import contextlib
from pathlib import Path
from typing import Any

import torch

from . import sequences, transformer, volumes
from .torch_device import Tensors, TorchSession, several
from .torch_graphs import Graphs


class Session(TorchSession):
    """`model.pt` on one device; its forward takes and gives tensors in the interface's order.

    With `cuda_graph` each batch size has a CUDA graph, and each length that depends on the data one behind
    that."""

    def __init__(self, artifact: Path, kind: str, device: int = 0, cuda_graph: bool = False) -> None:
        super().__init__(artifact, kind, device)
        if cuda_graph and not self.fixed:
            raise ValueError("cuda_graph: a CUDA graph needs inputs with every axis but the batch fixed")
        self._module = torch.jit.load(str(artifact / "model.pt"), map_location=self.device).eval()
        _move_constants(self._module, self.device)
        if kind == "GPU":
            if self.ranks == {volumes.RANK}:
                volumes.channels_last(self._module)
            # Weights become constants: fewer and larger kernels (docs/experiments/transformer-kernels.md).
            self._module = torch.jit.freeze(self._module)
            if self.ranks == {volumes.RANK}:
                volumes.normalize_fast(self._module)
            sequences.channels_last(self._module)
            transformer.join_gelu(self._module)
            if cuda_graph:  # a kernel that Python starts pays only where a graph starts it again
                transformer.join_norms(self._module)
        self._graphs = Graphs(self._module) if cuda_graph and kind == "GPU" else None

    def compute(self, tensors: Tensors) -> Tensors:
        if self._graphs is not None:
            return self._graphs(tensors)
        return several(self._module(*(self.placed(tensor) for tensor in tensors)))


def _move_constants(module: Any, device: torch.device) -> None:
    """Have the tensors that a trace makes itself (`torch.arange`, say) made on `device`.

    Loading moves weights only; the graphs name the device that the module was traced on."""
    for part in module.modules():
        with contextlib.suppress(AttributeError, RuntimeError):  # a container has no forward, so no graph
            for node in part.graph.findAllNodes("prim::Constant"):
                if node.output().type().kind() == "DeviceObjType":
                    node.s_("value", str(device))
