"""TorchScript session of the hosted runtime."""

import contextlib
from pathlib import Path
from typing import Any

import torch

from . import transformer, volumes
from .torch_device import Tensors, TorchSession, several

WARM_UP_RUNS = 3
"""Before a capture: TorchScript's executor profiles the first runs and compiles for the next."""


class Session(TorchSession):
    """`model.pt` on one device; its forward takes and gives tensors in the interface's order.

    With `cuda_graph` each batch size has a CUDA graph, captured when it is first asked for.
    """

    def __init__(self, artifact: Path, kind: str, device: int = 0, cuda_graph: bool = False) -> None:
        super().__init__(artifact, kind, device)
        if cuda_graph and not self.fixed:
            raise ValueError("cuda_graph: a CUDA graph needs every axis but the batch fixed")
        self._module = torch.jit.load(str(artifact / "model.pt"), map_location=self.device).eval()
        _move_constants(self._module, self.device)
        if kind == "GPU":
            if self.ranks == {volumes.RANK}:
                volumes.channels_last(self._module)
            # Weights become constants: fewer and larger kernels (docs/performance.md).
            self._module = torch.jit.freeze(self._module)
            if self.ranks == {volumes.RANK}:
                volumes.normalize_fast(self._module)
            transformer.join_gelu(self._module)
            if cuda_graph:  # a kernel that Python starts pays only where a graph starts it again
                transformer.join_norms(self._module)
        self._graphs: dict[int, _Graph] | None = {} if cuda_graph else None
        self._pool = torch.cuda.graph_pool_handle() if cuda_graph and kind == "GPU" else None

    def compute(self, tensors: Tensors) -> Tensors:
        if self._graphs is None or self.device.type == "cpu":
            return several(self._module(*(t.to(self.device, non_blocking=True) for t in tensors)))
        size = len(tensors[0])
        if size not in self._graphs:
            places = tuple(t.to(self.device, copy=True) for t in tensors)
            self._graphs[size] = _Graph(self._module, places, self._pool)
        return self._graphs[size].replay(tensors)


class _Graph:
    """A CUDA graph of the module for one batch size, with the tensors that it reads and writes.

    Graphs may share a pool of memory, for one runs at a time and its outputs are copied before the next.
    """

    def __init__(self, module: Any, inputs: Tensors, pool: Any) -> None:
        self._inputs = inputs
        side = torch.cuda.Stream()
        with torch.cuda.stream(side):
            for _ in range(WARM_UP_RUNS):
                module(*inputs)
        side.synchronize()
        self._graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(self._graph, pool=pool):
            self._outputs = several(module(*inputs))

    def replay(self, inputs: Tensors) -> Tensors:
        """Copy in and replay; the outputs are good until the next replay."""
        for place, tensor in zip(self._inputs, inputs, strict=True):
            place.copy_(tensor, non_blocking=True)
        self._graph.replay()
        return self._outputs


def _move_constants(module: Any, device: torch.device) -> None:
    """Have the tensors that a trace makes itself (`torch.arange`, say) made on `device`.

    Loading moves weights only; the graphs name the device that the module was traced on."""
    for part in module.modules():
        with contextlib.suppress(AttributeError, RuntimeError):  # a container has no forward, so no graph
            for node in part.graph.findAllNodes("prim::Constant"):
                if node.output().type().kind() == "DeviceObjType":
                    node.s_("value", str(device))
