"""CUDA graphs of a TorchScript module: one for each batch size and, where a length of its outputs depends on
the data, a second one for each length.

A CUDA graph starts all kernels at once, so every shape must be known. A module that converts a tensor to a
number (for example the length of its speech) is cut there: the first half ends with that number, which the
host reads, and the second half has it as an input (ADR 15).
"""

from collections.abc import Callable
from typing import Any

import torch

from ...hosting.torch_device import Tensors, as_tuple

WARM_UP_RUNS = 3
"""Runs before a capture: TorchScript's executor profiles the first runs and compiles for the next."""
MOST_LENGTHS = 128
"""Pairs of batch size and length that get a graph, which stays; further pairs run without one."""
NUMBER = "aten::ScalarImplicit"
"""The operator that converts a tensor to a number in a trace."""


class Graphs:
    """Runs a frozen module on the GPU by CUDA graphs, which are captured at the first run of a size.

    They share a pool of memory: one graph runs at a time, and its outputs are copied before the next runs.
    """

    def __init__(self, module: Any) -> None:
        """Raises ValueError if shapes depend on the data in a way that no graph can follow."""
        self._first, self._second = halves(module)
        self._pool = torch.cuda.graph_pool_handle()
        self._sizes: dict[tuple[int, bool], tuple[Tensors, _Graph]] = {}
        self._lengths: dict[tuple[int, bool, int], _Graph] = {}

    def __call__(self, tensors: Tensors) -> Tensors:
        """Outputs on the GPU, valid until the next call; inputs are there or in the host's memory."""
        from_host = tensors[0].device.type == "cpu"
        size = len(tensors[0]), from_host
        if size not in self._sizes:
            self._sizes[size] = self._capture(tensors, from_host)
        buffers, first = self._sizes[size]
        for buffer, tensor in zip(buffers, tensors, strict=True):
            buffer.copy_(tensor, non_blocking=True)
        values = first.replay()
        if self._second is None:
            return values
        second, (number, *rest) = self._second, values
        length = int(number.item())
        at = (*size, length)
        if at not in self._lengths:
            if len(self._lengths) == MOST_LENGTHS:
                return as_tuple(second(length, *rest))
            self._lengths[at] = _Graph(lambda: second(length, *rest), self._pool)
        return self._lengths[at].replay()

    def _capture(self, tensors: Tensors, from_host: bool) -> "tuple[Tensors, _Graph]":
        """Buffers for inputs, and the graph that reads them. Buffers in the host's memory are pinned, and the
        graph copies from them."""
        buffers = tuple(torch.empty_like(tensor, pin_memory=from_host) for tensor in tensors)
        for buffer, tensor in zip(buffers, tensors, strict=True):
            buffer.copy_(tensor)
        module = self._first
        graph = _Graph(lambda: module(*(b.to("cuda", non_blocking=True) for b in buffers)), self._pool)
        return buffers, graph


class _Graph:
    """A CUDA graph of a function that always reads the same buffers, and the tensors that it writes."""

    def __init__(self, function: Callable[[], Any], pool: Any) -> None:
        side = torch.cuda.Stream()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            for _ in range(WARM_UP_RUNS):
                function()
        side.synchronize()
        self._graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(self._graph, pool=pool):
            self._outputs = as_tuple(function())

    def replay(self) -> Tensors:
        self._graph.replay()
        return self._outputs


def halves(module: Any) -> tuple[Any, Any | None]:
    """A frozen module and None, or its two halves if it converts a computed tensor to a number.

    The first half returns that number, as a tensor, and the tensors that the second takes after it.

    Raises:
        ValueError: it converts several tensors to numbers, or also has branches or loops.
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
    """The first half: returns the number at a position of the graph, and the tensors for the second half."""
    number = list(graph.nodes())[at]
    values = [number.inputsAt(0), *_taken(graph, number)]
    together = graph.create("prim::TupleConstruct", values, 1)
    together.output().setType(torch._C.TupleType([torch._C.TensorType.get()] * len(values)))
    graph.appendNode(together)
    graph.eraseOutput(0)
    graph.registerOutput(together.output())
    return _function(graph, without=1)  # the module itself


def _from(graph: Any, at: int) -> Any:
    """The second half: takes the number at a position of the graph, and tensors of the first half."""
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
    """The tensors that the second half takes from the first, in the graph's order."""
    second_half, wanted = {number.output().unique()}, list(graph.outputs())
    for node in graph.nodes():
        if any(value.unique() in second_half for value in node.inputs()):
            second_half.update(value.unique() for value in node.outputs())
            wanted += node.inputs()
    found: dict[int, Any] = {}
    while wanted:
        value = wanted.pop()
        if value.unique() in second_half or not _computed(value):
            continue
        if value.type().isSubtypeOf(torch._C.TensorType.get()):
            found[value.unique()] = value
        else:  # a number or a list is computed again from its tensors
            wanted += value.node().inputs()
    return [found[name] for name in sorted(found)]


def _computed(value: Any) -> bool:
    return bool(value.node().kind() != "prim::Constant")
