"""Add + layer norm in one kernel, in Triton's language, which PyTorch's CUDA builds bring."""

import torch
import triton
import triton.language as tl

WARPS = 4


def add_layer_norm(
    x: torch.Tensor, y: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor, eps: float
) -> torch.Tensor:
    """Layer norm over the last axis of x + y, contiguous tensors of one shape on a GPU; sums in fp32."""
    out = torch.empty_like(x)
    width = x.shape[-1]
    block = triton.next_power_of_2(width)
    _rows[(x.numel() // width,)](x, y, weight, bias, out, eps, width, block, num_warps=WARPS)
    return out


# Triton wants annotations of compile-time constants only.
@triton.jit  # type: ignore[untyped-decorator]
def _rows(x, y, weight, bias, out, eps, WIDTH: tl.constexpr, BLOCK: tl.constexpr):  # type: ignore[no-untyped-def]  # noqa: N803
    """One program computes one row."""
    column = tl.arange(0, BLOCK)
    valid = column < WIDTH
    place = tl.program_id(0).to(tl.int64) * WIDTH + column
    total = tl.load(x + place, valid, 0.0).to(tl.float32) + tl.load(y + place, valid, 0.0).to(tl.float32)
    centred = tl.where(valid, total - tl.sum(total) / WIDTH, 0.0)
    scaled = centred / tl.sqrt(tl.sum(centred * centred) / WIDTH + eps)
    scale = tl.load(weight + column, valid, 0.0).to(tl.float32)
    shift = tl.load(bias + column, valid, 0.0).to(tl.float32)
    tl.store(out + place, (scaled * scale + shift).to(out.dtype.element_ty), valid)
