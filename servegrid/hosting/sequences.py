"""TorchScript of networks on sequences, in half precision on a GPU: convolutions in tensor cores' layout.

PyTorch lays what a convolution over one axis takes and gives channels first, whatever layout it had, and
cuDNN lays it channels last again: on FastPitch a third of the GPU's time
(docs/experiments/convolutions-channels-last.md). One over two axes, the first of them of length one, keeps
its layout.
"""

from typing import Any

import torch

CONVOLUTION = "aten::_convolution"
ARGUMENTS = (
    "%x, %weight, %bias, %stride, %padding, %dilation, %transposed, %output_padding, %groups, "
    "%benchmark, %deterministic, %cudnn, %tf32"
)
PATTERN = f"""
graph({ARGUMENTS}):
  %y = {CONVOLUTION}({ARGUMENTS})
  return (%y)
"""
WEIGHT, TRANSPOSED = 1, 6
RANK = 3
"""Channels out, channels in and one axis."""


def channels_last(module: Any) -> None:
    """Have a frozen module's convolutions, if they are all halved ones over one axis, computed over two."""
    nodes = module.graph.findAllNodes(CONVOLUTION)
    if nodes and all(_replaceable(node) for node in nodes):
        replacement = str(torch.jit.script(_convolution).graph)
        torch._C._jit_pass_custom_pattern_based_rewrite_graph(PATTERN, replacement, module.graph)
        torch._C._jit_pass_constant_propagation(module.graph)  # lays the weights once


def _replaceable(node: Any) -> bool:
    weight = node.inputsAt(WEIGHT).toIValue()
    halved = weight is not None and weight.dtype == torch.float16 and weight.dim() == RANK
    return halved and node.inputsAt(TRANSPOSED).toIValue() is False


def _convolution(
    x: torch.Tensor,
    weight: torch.Tensor,
    bias: torch.Tensor,
    stride: list[int],
    padding: list[int],
    dilation: list[int],
    transposed: bool,
    output_padding: list[int],
    groups: int,
    benchmark: bool,
    deterministic: bool,
    cudnn: bool,
    tf32: bool,
) -> torch.Tensor:
    """The same as `torch.conv1d` of [batch, channels, length]."""
    laid = weight.unsqueeze(2).contiguous(memory_format=torch.channels_last)
    rows = x.unsqueeze(2)
    y = torch.conv2d(rows, laid, bias, [1, stride[0]], [0, padding[0]], [1, dilation[0]], groups)
    return y.squeeze(2)
