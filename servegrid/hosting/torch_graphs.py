"""CUDA graphs of a TorchScript module: one for each batch size and, where a length of its outputs depends on
the data, one for each such length behind it.

A CUDA graph starts all kernels at once and so must know every shape. A module that makes a number of a tensor
(the length of what it speaks, say) is cut there: the first half ends with that number, which the host reads,
and the second has it as an input.
"""

from collections.abc import Callable
from typing import Any

import torch

from .torch_device import Tensors, several

WARM_UP_RUNS = 3
"""Before a capture: TorchScript's executor profiles the first runs and compiles for the next."""
MOST_LENGTHS = 128
"""Batch sizes times lengths that get a graph, which stays; what is left runs without."""
NUMBER = "aten::ScalarImplicit"
"""Where a trace makes a number of a tensor."""


class Graphs:
    """Runs a frozen module on the GPU by CUDA graphs, which are captured when a size is first asked for.

    They share a pool of memory, for one runs at a time and its outputs are taken before the next.
    """

    def __init__(self, module: Any) -> None:
        """Raises ValueError where the module depends on its data in a way that no graph can follow."""
        self._first, self._second = halves(module)
        self._pool = torch.cuda.graph_pool_handle()
        self._sizes: dict[tuple[int, bool], tuple[Tensors, _Graph]] = {}
        self._lengths: dict[tuple[int, bool, int], _Graph] = {}

    def __call__(self, tensors: Tensors) -> Tensors:
        """The outputs, on the GPU and good until the next call, of inputs there or in the host's memory."""
        of_host = tensors[0].device.type == "cpu"
        size = len(tensors[0]), of_host
        if size not in self._sizes:
            self._sizes[size] = self._capture(tensors, of_host)
        places, first = self._sizes[size]
        for place, tensor in zip(places, tensors, strict=True):
            place.copy_(tensor, non_blocking=True)
        values = first.replay()
        if self._second is None:
            return values
        second, (number, *rest) = self._second, values
        length = int(number.item())
        at = (*size, length)
        if at not in self._lengths:
            if len(self._lengths) == MOST_LENGTHS:
                return several(second(length, *rest))
            self._lengths[at] = _Graph(lambda: second(length, *rest), self._pool)
        return self._lengths[at].replay()

    def _capture(self, tensors: Tensors, of_host: bool) -> "tuple[Tensors, _Graph]":
        """Places for inputs, and the graph that reads them; those in the host's memory are pinned, and the
        copies from there are in the graph."""
        places = tuple(torch.empty_like(tensor, pin_memory=of_host) for tensor in tensors)
        for place, tensor in zip(places, tensors, strict=True):
            place.copy_(tensor)
        module = self._first
        return places, _Graph(lambda: module(*(p.to("cuda", non_blocking=True) for p in places)), self._pool)


class _Graph:
    """A CUDA graph of a function that always reads the same places, with the tensors that it writes."""

    def __init__(self, function: Callable[[], Any], pool: Any) -> None:
        side = torch.cuda.Stream()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            for _ in range(WARM_UP_RUNS):
                function()
        side.synchronize()
        self._graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(self._graph, pool=pool):
            self._outputs = several(function())

    def replay(self) -> Tensors:
        self._graph.replay()
        return self._outputs


def halves(module: Any) -> tuple[Any, Any | None]:
    """A frozen module as one function of its inputs, or cut where it makes a number of its data: the first
    returns that number, as a tensor, and the tensors that the second takes behind it.

    Raises:
        ValueError: it makes several numbers, or has branches or loops.
    """
    graph = module.graph
    numbers = [i for i, n in enumerate(graph.nodes()) if n.kind() == NUMBER and _computed(n.inputsAt(0))]
    if not numbers:
        return module, None
    if len(numbers) > 1 or graph.findNode("prim::If") or graph.findNode("prim::Loop"):
        raise ValueError(
            "cuda_graph: the module's shapes depend on its data more than once, or by branches or loops; "
            "set serving.cuda_graph to false"
        )
    return _until(graph.copy(), numbers[0]), _from(graph.copy(), numbers[0])


def _until(graph: Any, at: int) -> Any:
    """Returns what the number at a place is made of, and what is taken from before it."""
    number = list(graph.nodes())[at]
    values = [number.inputsAt(0), *_taken(graph, number)]
    together = graph.create("prim::TupleConstruct", values, 1)
    together.output().setType(torch._C.TupleType([torch._C.TensorType.get()] * len(values)))
    graph.appendNode(together)
    graph.eraseOutput(0)
    graph.registerOutput(together.output())
    return _function(graph, without=1)  # the module itself


def _from(graph: Any, at: int) -> Any:
    """Takes the number, and what is taken from before it."""
    number, before = list(graph.nodes())[at], len(list(graph.inputs()))
    values = _taken(graph, number)
    length = graph.addInput("length")
    length.setType(torch._C.IntType.get())
    number.output().replaceAllUsesWith(length)
    for value in values:
        value.replaceAllUsesWith(graph.addInput())
    return _function(graph, without=before)


def _function(graph: Any, without: int) -> Any:
    torch._C._jit_pass_dce(graph)
    for _ in range(without):
        graph.eraseInput(0)
    return torch._C._create_function_from_graph("half", graph)


def _taken(graph: Any, number: Any) -> list[Any]:
    """The tensors that what depends on the number takes from what does not, in the graph's order."""
    behind, wanted = {number.output().unique()}, list(graph.outputs())
    for node in graph.nodes():
        if any(value.unique() in behind for value in node.inputs()):
            behind.update(value.unique() for value in node.outputs())
            wanted += node.inputs()
    found: dict[int, Any] = {}
    while wanted:
        value = wanted.pop()
        if value.unique() in behind or not _computed(value):
            continue
        if value.type().isSubtypeOf(torch._C.TensorType.get()):
            found[value.unique()] = value
        else:  # a number or a list is made again of its tensors
            wanted += value.node().inputs()
    return [found[name] for name in sorted(found)]


def _computed(value: Any) -> bool:
    return bool(value.node().kind() != "prim::Constant")
