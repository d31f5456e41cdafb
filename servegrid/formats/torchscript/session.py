"""TorchScript session of the hosted runtime."""

import contextlib
from pathlib import Path
from typing import Any

import torch

from ...hosting.torch_device import Tensors, TorchSession, as_tuple
from . import sequences, transformer, volumes
from .torch_graphs import Graphs


class Session(TorchSession):
    """`model.pt` on one device; its forward takes and gives tensors in the interface's order.

    With `cuda_graph` each batch size has a CUDA graph. Where an output's length depends on the data, each
    length has a second one."""

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
            transformer.fuse_gelu(self._module)
            if cuda_graph:  # the kernel is started from Python, which is slow unless a graph replays it
                transformer.fuse_norms(self._module)
        self._graphs = Graphs(self._module) if cuda_graph and kind == "GPU" else None

    def compute(self, tensors: Tensors) -> Tensors:
        if self._graphs is not None:
            return self._graphs(tensors)
        return as_tuple(self._module(*(self.to_device(tensor) for tensor in tensors)))


def _move_constants(module: Any, device: torch.device) -> None:
    """Make the tensors that a trace creates itself (for example by `torch.arange`) on `device`.

    Loading moves weights only; the graphs name the device on which the module was traced."""
    for part in module.modules():
        with contextlib.suppress(AttributeError, RuntimeError):  # a container has no forward, and no graph
            for node in part.graph.findAllNodes("prim::Constant"):
                if node.output().type().kind() == "DeviceObjType":
                    node.s_("value", str(device))
