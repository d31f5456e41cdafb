"""Faster TorchScript of transformers, in half precision on a GPU: fewer kernels between matrix products.

PyTorch runs GELU, and the sum before a layer norm, as kernels of their own that mostly read and write memory:
1.3 of 10 ms on BERT-large (docs/experiments/transformer-kernels.md).
"""

import sys
from typing import Any

import torch

LINEAR_GELU = """
graph(%x, %weight, %bias, %approximate):
  %product = aten::linear(%x, %weight, %bias)
  %y = aten::gelu(%product, %approximate)
  return (%y)
"""
ADD_LAYER_NORM = """
graph(%x, %y, %alpha, %shape, %weight, %bias, %eps, %cudnn):
  %sum = aten::add(%x, %y, %alpha)
  %z = aten::layer_norm(%sum, %shape, %weight, %bias, %eps, %cudnn)
  return (%z)
"""
FUSED_LAYER_NORM = """
graph(%x, %y, %alpha, %shape, %weight, %bias, %eps, %cudnn):
  %z = servegrid::add_layer_norm(%x, %y, %alpha, %shape, %weight, %bias, %eps)
  return (%z)
"""
HALF = (torch.float16, torch.bfloat16)

_library = torch.library.Library("servegrid", "DEF")
_library.define(
    "add_layer_norm(Tensor x, Tensor y, Scalar alpha, int[] shape, Tensor weight, Tensor bias, float eps)"
    " -> Tensor"
)


def fuse_gelu(module: Any) -> None:
    """Fuse linear + GELU in a frozen module, if all such linear layers have weights and a bias in half
    precision. The kernel computes the tanh form of GELU, which is within 5e-4 of the exact one."""
    products = [node.inputsAt(0).node() for node in module.graph.findAllNodes("aten::gelu")]
    products = [node for node in products if node.kind() == "aten::linear"]
    if products and all(_half(node.inputsAt(1)) and _half(node.inputsAt(2)) for node in products):
        replacement = str(torch.jit.script(_linear_gelu).graph)
        torch._C._jit_pass_custom_pattern_based_rewrite_graph(LINEAR_GELU, replacement, module.graph)


def fuse_norms(module: Any) -> None:
    """Fuse add + layer norm in a frozen module, if every layer norm of a sum has weights in half precision
    and every such sum two tensors. Where the kernel cannot be compiled nothing changes, and the log says
    so."""
    norms = module.graph.findAllNodes("aten::layer_norm")
    norms = [node for node in norms if node.inputsAt(0).node().kind() == "aten::add"]
    if not norms or not all(_fusible(node) for node in norms):
        return
    try:
        from .layer_norm import add_layer_norm

        some = norms[0].inputsAt(2).toIValue()
        add_layer_norm(some, some, some, some, 1e-5)
    except Exception as error:  # no Triton or no C compiler, which raise errors of several types
        print(f"add + layer norm is not fused: {error}", file=sys.stderr, flush=True)
        return
    torch._C._jit_pass_custom_pattern_based_rewrite_graph(ADD_LAYER_NORM, FUSED_LAYER_NORM, module.graph)


def _add_layer_norm(
    x: torch.Tensor,
    y: torch.Tensor,
    alpha: float,
    shape: list[int],
    weight: torch.Tensor,
    bias: torch.Tensor,
    eps: float,
) -> torch.Tensor:
    from .layer_norm import add_layer_norm  # needs Triton, as fuse_norms has checked

    rows = x.shape == y.shape and x.dtype == y.dtype and x.is_contiguous() and y.is_contiguous()
    if rows and alpha == 1 and len(shape) == 1:
        return add_layer_norm(x, y, weight, bias, eps)
    return torch.nn.functional.layer_norm(torch.add(x, y, alpha=alpha), shape, weight, bias, eps)


_library.impl("add_layer_norm", _add_layer_norm, "CompositeExplicitAutograd")


def _half(value: Any) -> bool:
    weight = value.toIValue()
    return isinstance(weight, torch.Tensor) and weight.dtype in HALF


def _fusible(norm: Any) -> bool:
    """A sum may also have a number, which a trace holds as a constant tensor."""
    add = norm.inputsAt(0).node()
    added = [add.inputsAt(0), add.inputsAt(1)]
    tensors = all(v.type().kind() == "TensorType" and v.node().kind() != "prim::Constant" for v in added)
    return tensors and _half(norm.inputsAt(2)) and _half(norm.inputsAt(3))


def _linear_gelu(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor, approximate: str) -> torch.Tensor:
    rows = torch._addmm_activation(bias, x.flatten(0, -2), weight.t(), use_gelu=True)
    return rows.unflatten(0, x.shape[:-1])
