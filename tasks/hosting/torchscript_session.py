"""TorchScript session of the hosted runtime."""

import contextlib
import json
from pathlib import Path
from typing import Any

import numpy as np
import torch

Array = np.ndarray[Any, Any]
Tensors = tuple[torch.Tensor, ...]

WARM_UP_RUNS = 3
"""Before a capture: TorchScript's executor profiles the first runs and compiles for the next."""


class Session:
    """`model.pt` on one device; its forward takes and gives tensors in the interface's order.

    On a GPU the copies go through pinned memory; with `cuda_graph` each batch size has a CUDA graph,
    captured when it is first asked for.
    """

    def __init__(self, artifact: Path, kind: str, device: int = 0, cuda_graph: bool = False) -> None:
        if kind == "GPU" and not torch.cuda.is_available():
            raise RuntimeError("PyTorch sees no GPU: is a torch build with CUDA installed?")
        self._device = torch.device("cuda", device) if kind == "GPU" else torch.device("cpu")
        if kind == "GPU":
            torch.cuda.set_device(device)  # graphs and streams are the current device's
            torch.backends.cudnn.allow_tf32 = False  # fp32 is fp32
        self._module = torch.jit.load(str(artifact / "model.pt"), map_location=self._device).eval()
        _move_constants(self._module, self._device)
        interface = json.loads((artifact / "interface.json").read_text(encoding="utf-8"))
        self._inputs = [tensor["name"] for tensor in interface["inputs"]]
        self._outputs = [tensor["name"] for tensor in interface["outputs"]]
        axes = [axis for tensor in interface["inputs"] for axis in tensor["shape"][1:]]
        if cuda_graph and -1 in axes:
            raise ValueError("cuda_graph: a CUDA graph needs every axis but the batch fixed")
        # Worth it where a shape comes again: cuDNN tries its algorithms at the first of each.
        torch.backends.cudnn.benchmark = -1 not in axes
        self._graphs: dict[int, _Graph] | None = {} if cuda_graph else None
        self._pool = torch.cuda.graph_pool_handle() if cuda_graph and kind == "GPU" else None

    def run(self, inputs: dict[str, Array]) -> dict[str, Array]:
        """One batch; arrays by tensor name, batch first."""
        with torch.inference_mode():
            tensors = tuple(torch.from_numpy(inputs[name]) for name in self._inputs)
            values = self._on_cpu(tensors) if self._device.type == "cpu" else self._on_gpu(tensors)
        return {n: v.numpy() for n, v in zip(self._outputs, values, strict=True)}

    def _on_cpu(self, tensors: Tensors) -> Tensors:
        return _several(self._module(*tensors))

    def _on_gpu(self, tensors: Tensors) -> Tensors:
        pinned = [tensor.pin_memory() for tensor in tensors]
        if self._graphs is None:
            values = _several(self._module(*(t.to(self._device, non_blocking=True) for t in pinned)))
        else:
            size = len(tensors[0])
            if size not in self._graphs:
                places = tuple(t.to(self._device) for t in tensors)
                self._graphs[size] = _Graph(self._module, places, self._pool)
            values = self._graphs[size].replay(pinned)
        answers = tuple(torch.empty(v.shape, dtype=v.dtype, pin_memory=True) for v in values)
        for answer, value in zip(answers, values, strict=True):
            answer.copy_(value, non_blocking=True)
        torch.cuda.current_stream().synchronize()
        return answers


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
            self._outputs = _several(module(*inputs))

    def replay(self, inputs: list[torch.Tensor]) -> Tensors:
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


def _several(answer: Any) -> Tensors:
    """A forward's one tensor or several, as several."""
    return tuple(answer) if isinstance(answer, tuple | list) else (answer,)
