"""Convolutions that are replaced in networks on sequences, computed here on the CPU."""

from __future__ import annotations

import json
from typing import Any

SCRIPT = """
import copy, json, torch
from servegrid.formats.torchscript import sequences
torch.manual_seed(0)
class Layer(torch.nn.Module):
    def __init__(self, first):
        super().__init__()
        self.first = first
        self.second = torch.nn.Conv1d(8, 6, 2, stride=3, dilation=2, groups=2, bias=False)
    def forward(self, x):
        return self.second(self.first(x.transpose(1, 2)).relu()).transpose(1, 2)
def served(net, half):
    module = torch.jit.trace(copy.deepcopy(net), x)
    module = torch.jit.freeze((module.half() if half else module).eval())
    sequences.channels_last(module)
    return module
x = torch.randn(3, 11, 6)
found = []
convolution, transposed = torch.nn.Conv1d(6, 8, 3, padding=1), torch.nn.ConvTranspose1d(6, 8, 3)
with torch.inference_mode():
    for first, half in ((convolution, True), (convolution, False), (transposed, True)):
        net = Layer(first).eval()
        module = served(net, half)
        y = module(x.half() if half else x)
        kept = len(module.graph.findAllNodes("aten::_convolution"))
        off = (y.float() - net(x)).abs().max().item()
        laid = len(module.graph.findAllNodes("aten::contiguous"))
        found.append([kept, laid, y.is_contiguous(), off])
print(json.dumps(found))
"""


def test_fp16_conv1d_is_replaced_and_agrees(run_python: Any) -> None:
    replaced, in_fp32, transposed = json.loads(run_python(SCRIPT).splitlines()[-1])
    assert replaced[:3] == [0, 0, True]  # weights are laid once, and the answer lies as the network's input
    assert replaced[3] < 0.01
    assert in_fp32[0] == transposed[0] == 2
    assert in_fp32[3] == 0
