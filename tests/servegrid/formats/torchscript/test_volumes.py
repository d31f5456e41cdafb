"""Instance norms that are replaced in networks on volumes, computed here on the CPU."""

from __future__ import annotations

import json
from typing import Any

SCRIPT = """
import copy, json, torch
from servegrid.formats.torchscript import volumes
torch.manual_seed(0)
def network(affine):
    norm = torch.nn.InstanceNorm3d(4, affine=affine)
    layers = [torch.nn.Conv3d(2, 4, 3, padding=1), norm, torch.nn.LeakyReLU()]
    made = torch.nn.Sequential(*layers, torch.nn.Conv3d(4, 2, 1)).eval()
    with torch.no_grad():
        made[0].bias += 3
        if affine:
            made[1].weight.uniform_(0.5, 2), made[1].bias.uniform_(-1, 1)
    return made
def served(net, half):
    module = torch.jit.trace(copy.deepcopy(net), x)
    module = (module.half() if half else module).eval()
    volumes.channels_last(module)
    module = torch.jit.freeze(module)
    volumes.normalize_fast(module)
    return module
x = torch.randn(3, 2, 6, 7, 8)
found = []
with torch.inference_mode():
    for affine, half in ((True, True), (True, False), (False, True)):
        net = network(affine)
        module = served(net, half)
        y = module(x.half() if half else x).float()
        kept = len(module.graph.findAllNodes("aten::instance_norm"))
        found.append([kept, (y - net(x)).abs().max().item()])
print(json.dumps(found))
"""


def test_fp16_instance_norms_with_weights_are_replaced_and_agree(run_python: Any) -> None:
    replaced, in_fp32, without_weights = json.loads(run_python(SCRIPT).splitlines()[-1])
    assert replaced[0] == 0
    assert replaced[1] < 0.02
    assert in_fp32[0] == without_weights[0] == 1
    assert in_fp32[1] < 1e-5
    assert without_weights[1] < 0.02
