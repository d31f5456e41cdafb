"""Kernels that are fused in transformers, computed here on the CPU."""

from __future__ import annotations

import json
from typing import Any

SCRIPT = """
import json, sys, types, torch
kernel = types.ModuleType("servegrid.formats.torchscript.layer_norm")  # Triton compiles for a GPU only
def add_layer_norm(x, y, weight, bias, eps):
    calls.append(x.shape)
    return torch.nn.functional.layer_norm(x + y, x.shape[-1:], weight, bias, eps)
kernel.add_layer_norm = add_layer_norm
calls = []
if "without" not in sys.argv:
    sys.modules["servegrid.formats.torchscript.layer_norm"] = kernel
from servegrid.formats.torchscript import transformer
class Layer(torch.nn.Module):
    def __init__(self, bias=True, affine=True, number=False, alpha=1):
        super().__init__()
        self.up, self.down = torch.nn.Linear(8, 32, bias=bias), torch.nn.Linear(32, 8)
        self.norm, self.number, self.alpha = torch.nn.LayerNorm(8, elementwise_affine=affine), number, alpha
    def forward(self, x):
        grown = self.down(torch.nn.functional.gelu(self.up(x)))
        return self.norm(grown + 1 if self.number else torch.add(grown, x, alpha=self.alpha))
def found(dtype, layers):
    torch.manual_seed(0)
    net = torch.nn.Sequential(*layers).eval().to(dtype)
    x = torch.randn(3, 5, 8).to(dtype)
    with torch.inference_mode():
        module = torch.jit.freeze(torch.jit.trace(net, x))
        transformer.fuse_gelu(module)
        transformer.fuse_norms(module)
        left = [len(module.graph.findAllNodes(f"aten::{name}")) for name in ("gelu", "layer_norm")]
        off = (module(x).float() - net(x).float()).abs().max().item()
        again = module(x[:2, :3])  # other shapes than it was traced with
        assert again.shape == (2, 3, 8)
    return [*left, off]
half = torch.float16
print(json.dumps({
    "halved": found(half, [Layer(), Layer()]),
    "bf16": found(torch.bfloat16, [Layer()]),
    "fp32": found(torch.float32, [Layer()]),
    "no bias": found(half, [Layer(), Layer(bias=False)]),
    "no weights": found(half, [Layer(affine=False)]),
    "a number": found(half, [Layer(number=True)]),
    "half of it": found(half, [Layer(alpha=0.5)]),
    "calls": len(calls),
}))
"""


def test_fp16_gelu_and_norms_are_fused_and_agree(run_python: Any) -> None:
    found = json.loads(run_python(SCRIPT).splitlines()[-1])
    assert found["halved"][:2] == [0, 0]
    assert found["bf16"][:2] == [0, 0]
    assert found["fp32"][:2] == [1, 1]
    assert found["no bias"][:2] == [2, 0]
    assert found["no weights"][:2] == [0, 1]
    assert found["a number"][:2] == [0, 1]
    assert found["half of it"][:2] == [0, 0]
    off = {name: row[2] for name, row in found.items() if name != "calls"}
    assert off.pop("bf16") < 0.05
    assert off.pop("fp32") == 0
    assert max(off.values()) < 0.005, off
    assert found["calls"] > 0


def test_norms_are_not_fused_without_a_compiler(run_python: Any) -> None:
    found = json.loads(run_python(SCRIPT, "without").splitlines()[-1])
    assert found["halved"][:2] == [0, 2]
    assert found["halved"][2] < 0.005
    assert found["calls"] == 0
