"""TorchScript of transformers, in half precision on a GPU: fewer kernels between the products.

To PyTorch GELU, and the sum before a layer norm, are kernels of their own, which do little but read and
write: on BERT-large 1.3 of 10 ms (docs/experiments/transformer-kernels.md).
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
OF_ONE_KERNEL = """
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


def join_gelu(module: Any) -> None:
    """Have the product before each GELU of a frozen module end in it, if all such products are halved ones
    with a bias. The product's kernel knows the tanh form, which is within 5e-4 of the exact one."""
    products = [node.inputsAt(0).node() for node in module.graph.findAllNodes("aten::gelu")]
    products = [node for node in products if node.kind() == "aten::linear"]
    if products and all(_halved(node.inputsAt(1)) and _halved(node.inputsAt(2)) for node in products):
        replacement = str(torch.jit.script(_linear_gelu).graph)
        torch._C._jit_pass_custom_pattern_based_rewrite_graph(LINEAR_GELU, replacement, module.graph)


def join_norms(module: Any) -> None:
    """Have the layer norms of a frozen module add up the sums that they alone take, if every layer norm of a
    sum has halved weights and every such sum two tensors. Where the kernel cannot be compiled they stay, and
    the log says so."""
    norms = module.graph.findAllNodes("aten::layer_norm")
    norms = [node for node in norms if node.inputsAt(0).node().kind() == "aten::add"]
    if not norms or not all(_joinable(node) for node in norms):
        return
    try:
        from .layer_norm import add_layer_norm

        some = norms[0].inputsAt(2).toIValue()
        add_layer_norm(some, some, some, some, 1e-5)
    except Exception as error:  # no Triton, no C compiler: it has no one type for what may lack
        print(f"layer norms stay apart from the sums before them: {error}", file=sys.stderr, flush=True)
        return
    torch._C._jit_pass_custom_pattern_based_rewrite_graph(ADD_LAYER_NORM, OF_ONE_KERNEL, module.graph)


def _add_layer_norm(
    x: torch.Tensor,
    y: torch.Tensor,
    alpha: float,
    shape: list[int],
    weight: torch.Tensor,
    bias: torch.Tensor,
    eps: float,
) -> torch.Tensor:
    from .layer_norm import add_layer_norm  # it needs Triton, which join_norms has tried

    rows = x.shape == y.shape and x.dtype == y.dtype and x.is_contiguous() and y.is_contiguous()
    if rows and alpha == 1 and len(shape) == 1:
        return add_layer_norm(x, y, weight, bias, eps)
    return torch.nn.functional.layer_norm(torch.add(x, y, alpha=alpha), shape, weight, bias, eps)


_library.impl("add_layer_norm", _add_layer_norm, "CompositeExplicitAutograd")


def _halved(value: Any) -> bool:
    weight = value.toIValue()
    return isinstance(weight, torch.Tensor) and weight.dtype in HALF


def _joinable(norm: Any) -> bool:
    """A number can be added, too; a trace has it as a constant tensor."""
    add = norm.inputsAt(0).node()
    added = [add.inputsAt(0), add.inputsAt(1)]
    tensors = all(v.type().kind() == "TensorType" and v.node().kind() != "prim::Constant" for v in added)
    return tensors and _halved(norm.inputsAt(2)) and _halved(norm.inputsAt(3))


def _linear_gelu(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor, approximate: str) -> torch.Tensor:
    rows = torch._addmm_activation(bias, x.flatten(0, -2), weight.t(), use_gelu=True)
    return rows.unflatten(0, x.shape[:-1])
