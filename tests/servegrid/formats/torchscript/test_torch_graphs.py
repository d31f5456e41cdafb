"""Modules with data-dependent shapes are cut in two. test_gpu.py tests their CUDA graphs."""

from __future__ import annotations

import json
from typing import Any

SCRIPT = """
import json, torch
from servegrid.formats.torchscript.torch_graphs import halves
class Speech(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.inside, self.outside = torch.nn.Linear(6, 32), torch.nn.Linear(32, 4)
    def forward(self, x, scale):
        hidden = self.inside(x)
        longest = x[:, 0].round().long().max().clamp(min=1)
        time = torch.arange(longest).view(1, -1, 1).expand(hidden.shape[0], -1, hidden.shape[1])
        return self.outside(hidden.unsqueeze(1) * time * scale), hidden, scale + 1
class Twice(torch.nn.Module):
    def forward(self, x):
        return torch.arange(x[0].long()), torch.arange(x[1].long())
class Fixed(torch.nn.Module):
    def forward(self, x):
        return x * torch.arange(3)
def frozen(net, *x):
    return torch.jit.freeze(torch.jit.trace(net.eval(), x))
torch.manual_seed(0)
net, same, shapes = Speech(), [], []
with torch.inference_mode():
    first, second = halves(frozen(net, torch.full((2, 6), 3.0), torch.ones(1)))
    for size, length in ((2, 3), (5, 7), (1, 1)):  # traced with the first
        x, scale = torch.randn(size, 6).clamp(-1, 1), torch.rand(1)
        x[0, 0] = length
        number, *values = first(x, scale)
        found, want = second(int(number), *values), net(x, scale)
        same.append([torch.equal(a, b) for a, b in zip(found, want, strict=True)])
        shapes.append([int(number), list(found[0].shape)])
    whole, none = halves(frozen(Fixed(), torch.ones(3)))
    try:
        halves(frozen(Twice(), torch.ones(2)))
        refused = "no"
    except ValueError as error:
        refused = str(error)
print(json.dumps([same, shapes, none is None and whole(torch.ones(3)).tolist(), refused]))
"""


def test_module_is_cut_where_it_converts_its_data_to_a_number(run_python: Any) -> None:
    same, shapes, fixed, refused = json.loads(run_python(SCRIPT).splitlines()[-1])
    assert same == [[True] * 3] * 3
    assert shapes == [[3, [2, 3, 4]], [7, [5, 7, 4]], [1, [1, 1, 4]]]
    assert fixed == [0, 1, 2]
    assert "depend on its data more than once" in refused and "serving.cuda_graph" in refused
