"""Faster TorchScript of networks on volumes, in half precision on a GPU.

PyTorch's instance norm uses one block of threads a channel and does not keep the layout that tensor cores
want: on 3D nnU-Net it took two thirds of the time (docs/experiments/instance-norms.md).
"""

from typing import Any, Optional

import torch

PATTERN = """
graph(%x, %weight, %bias, %mean, %var, %use_input, %momentum, %eps, %cudnn):
  %y = aten::instance_norm(%x, %weight, %bias, %mean, %var, %use_input, %momentum, %eps, %cudnn)
  return (%y)
"""
WEIGHT, USE_INPUT = 1, 5
RANK = 5
"""Batch, channels and three axes in space."""


def channels_last(module: Any) -> None:
    """Convert the weights of 3D convolutions to channels last; the tensors after them keep that layout."""
    for parameter in module.parameters():
        if parameter.dim() == RANK and parameter.dtype == torch.float16:
            parameter.data = parameter.data.contiguous(memory_format=torch.channels_last_3d)


def normalize_fast(module: Any) -> None:
    """Compute a frozen module's instance norms by reductions that use the whole GPU, if all of them have
    weights in fp16."""
    nodes = module.graph.findAllNodes("aten::instance_norm")
    if nodes and all(_replaceable(node) for node in nodes):
        replacement = str(torch.jit.script(_instance_norm).graph)
        torch._C._jit_pass_custom_pattern_based_rewrite_graph(PATTERN, replacement, module.graph)


def _replaceable(node: Any) -> bool:
    weight = node.inputsAt(WEIGHT).toIValue()
    return weight is not None and weight.dtype == torch.float16 and node.inputsAt(USE_INPUT).toIValue()


def _instance_norm(
    x: torch.Tensor,
    weight: torch.Tensor,
    bias: torch.Tensor,
    running_mean: Optional[torch.Tensor],  # noqa: UP045  # TorchScript reads it
    running_var: Optional[torch.Tensor],  # noqa: UP045
    use_input: bool,
    momentum: float,
    eps: float,
    cudnn: bool,
) -> torch.Tensor:
    """Like `torch.instance_norm` of [batch, channels, depth, height, width]; sums in fp32."""
    axes = [2, 3, 4]
    mean = torch.mean(x, axes, True, dtype=torch.float32)
    length = torch.linalg.vector_norm(x, 2.0, axes, True, dtype=torch.float32)
    variance = length * length / (x.size(2) * x.size(3) * x.size(4)) - mean * mean
    scale = weight.float().view(1, -1, 1, 1, 1) * torch.rsqrt(torch.clamp(variance, min=0.0) + eps)
    shift = bias.float().view(1, -1, 1, 1, 1) - mean * scale
    return torch.addcmul(shift.to(x.dtype), x, scale.to(x.dtype))
