"""Faster TorchScript of networks on sequences, in half precision on a GPU: convolutions channels last.

PyTorch forces the tensors of a convolution over one axis to channels first, and cuDNN converts them back to
channels last, which took a third of the GPU's time on FastPitch
(docs/experiments/convolutions-channels-last.md). A convolution over two axes, the first of length one, keeps
the layout.
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
    """Compute a frozen module's convolutions over two axes, if all of them are in fp16 and over one axis."""
    nodes = module.graph.findAllNodes(CONVOLUTION)
    if nodes and all(_replaceable(node) for node in nodes):
        replacement = str(torch.jit.script(_convolution).graph)
        torch._C._jit_pass_custom_pattern_based_rewrite_graph(PATTERN, replacement, module.graph)
        torch._C._jit_pass_constant_propagation(module.graph)  # converts the weights once


def _replaceable(node: Any) -> bool:
    weight = node.inputsAt(WEIGHT).toIValue()
    half = weight is not None and weight.dtype == torch.float16 and weight.dim() == RANK
    return half and node.inputsAt(TRANSPOSED).toIValue() is False


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
    """Like `torch.conv1d` of [batch, channels, length]."""
    converted = weight.unsqueeze(2).contiguous(memory_format=torch.channels_last)
    rows = x.unsqueeze(2)
    y = torch.conv2d(rows, converted, bias, [1, stride[0]], [0, padding[0]], [1, dilation[0]], groups)
    return y.squeeze(2)
