"""TorchScript on an NVIDIA GPU: networks with replaced kernels agree with fp32 on the CPU."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.gpu

TRANSFORMER = """
import copy, json, sys, torch
from pathlib import Path
from servegrid.formats.torchscript.session import Session
class Layer(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.up, self.down = torch.nn.Linear(200, 800), torch.nn.Linear(800, 200)
        self.norm = torch.nn.LayerNorm(200)
    def forward(self, x):
        return self.norm(self.down(torch.nn.functional.gelu(self.up(x))) + x)
torch.manual_seed(0)
net, folder = torch.nn.Sequential(Layer(), Layer()).eval(), Path(sys.argv[1])
torch.jit.trace(copy.deepcopy(net), torch.zeros(2, 5, 200)).half().save(folder / "model.pt")
session = Session(folder, "GPU", cuda_graph=True)
kinds = ["aten::gelu", "aten::layer_norm", "servegrid::add_layer_norm"]
off = 0.0
for size in (1, 3, 8, 3):
    x = torch.randn(size, 5, 200)
    with torch.inference_mode():
        found = torch.from_numpy(session.run({"x": x.half().numpy()})["y"]).float()
        off = max(off, (found - net(x)).abs().max().item())
print(json.dumps([*(len(session._module.graph.findAllNodes(kind)) for kind in kinds), off]))
"""


def test_fp16_transformers_are_fused_and_agree_with_fp32(run_python: Any, tmp_path: Path) -> None:
    tensors = {f"{way}puts": [{"name": n, "shape": [-1, 5, 200]}] for way, n in (("in", "x"), ("out", "y"))}
    (tmp_path / "interface.json").write_text(json.dumps(tensors))
    *nodes, off = json.loads(run_python(TRANSFORMER, tmp_path).splitlines()[-1])
    assert nodes == [0, 0, 2]
    assert off < 0.01


SPEECH = """
import json, sys, torch
from pathlib import Path
from servegrid.formats.torchscript.session import Session
class Speech(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.inside, self.outside = torch.nn.Linear(6, 32), torch.nn.Linear(32, 4)
    def forward(self, x):
        hidden = self.inside(x)
        longest = x[:, 0].round().long().max().clamp(min=1)
        time = torch.arange(longest, device=x.device)
        return self.outside(hidden).unsqueeze(1) * time[None, :, None], hidden
torch.manual_seed(0)
net, folder = Speech().eval(), Path(sys.argv[1])
torch.jit.trace(net, torch.full((2, 6), 3.0)).save(folder / "model.pt")
session = Session(folder, "GPU", cuda_graph=True)
for size, length in ((2, 3), (5, 3), (2, 7), (2, 3), (1, 7), (5, 3)):
    x = torch.randn(size, 6).clamp(-1, 1)
    x[-1, 0] = length
    with torch.inference_mode():
        want = net(x)
        host = session.run({"x": x.numpy()})
        there = session.run_on_device({"x": x.cuda()})
        for name, value in zip(("y", "z"), want, strict=True):
            for found in (host, there):
                torch.testing.assert_close(torch.from_numpy(found[name]), value, rtol=0, atol=1e-4)
print(json.dumps(sorted(session._graphs._lengths)))
"""


def test_each_data_dependent_length_has_a_graph(run_python: Any, tmp_path: Path) -> None:
    shapes = {"in": {"x": [-1, 6]}, "out": {"y": [-1, -1, 4], "z": [-1, 32]}}
    tensors = {f"{w}puts": [{"name": n, "shape": s} for n, s in shapes[w].items()] for w in shapes}
    (tmp_path / "interface.json").write_text(json.dumps(tensors))
    graphs = json.loads(run_python(SPEECH, tmp_path).splitlines()[-1])
    sizes = [[1, 7], [2, 3], [2, 7], [5, 3]]
    assert graphs == sorted([size, of_host, length] for size, length in sizes for of_host in (False, True))


SEQUENCES = """
import copy, json, sys, torch
from pathlib import Path
from servegrid.formats.torchscript.session import Session
class Layer(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.wide = torch.nn.Conv1d(96, 256, 3, padding=1)
        self.narrow = torch.nn.Conv1d(256, 96, 3, padding=1)
        self.norm = torch.nn.LayerNorm(96)
    def forward(self, x):
        inner = self.wide(x.transpose(1, 2)).relu()
        return self.norm(x + self.narrow(inner).transpose(1, 2))
torch.manual_seed(0)
net, folder = torch.nn.Sequential(Layer(), Layer()).eval(), Path(sys.argv[1])
torch.jit.trace(copy.deepcopy(net), torch.zeros(2, 50, 96)).half().save(folder / "model.pt")
off = 0.0
for graph in (False, True):
    session = Session(folder, "GPU", cuda_graph=graph)
    for size in (1, 3, 8, 3):
        x = torch.randn(size, 50, 96)
        with torch.inference_mode():
            found = torch.from_numpy(session.run({"x": x.half().numpy()})["y"]).float()
            off = max(off, (found - net(x)).abs().max().item())
x = x.half().cuda()
cuda = [torch.profiler.ProfilerActivity.CUDA]
with torch.inference_mode(), torch.profiler.profile(activities=cuda) as seen:
    session._module(x)
    torch.cuda.synchronize()
kernels = [event.key for event in seen.key_averages()]
print(json.dumps([off, kernels]))
"""


def test_fp16_conv1d_keeps_its_layout_and_agrees_with_fp32(run_python: Any, tmp_path: Path) -> None:
    tensors = {f"{way}puts": [{"name": n, "shape": [-1, 50, 96]}] for way, n in (("in", "x"), ("out", "y"))}
    (tmp_path / "interface.json").write_text(json.dumps(tensors))
    off, kernels = json.loads(run_python(SEQUENCES, tmp_path).splitlines()[-1])
    assert off < 0.01
    assert kernels and not [kernel for kernel in kernels if "nchw" in kernel.lower()]


VOLUMES = """
import copy, json, sys
from pathlib import Path
import numpy as np, torch
from servegrid.hosting.outputs import THROUGH_HOST
from servegrid.formats.torchscript.session import Session
torch.manual_seed(0)
layers = [
    torch.nn.Conv3d(4, 16, 3, padding=1), torch.nn.InstanceNorm3d(16, affine=True), torch.nn.LeakyReLU(),
    torch.nn.ConvTranspose3d(16, 8, 2, stride=2), torch.nn.InstanceNorm3d(8, affine=True),
    torch.nn.Conv3d(8, 4, 1),
]
network = torch.nn.Sequential(*layers).eval()
with torch.no_grad():
    layers[0].bias += 3  # a mean of some deviations, and weights that are not 1
    layers[1].weight.uniform_(0.5, 2), layers[1].bias.uniform_(-1, 1)
folder = Path(sys.argv[1])
torch.jit.trace(copy.deepcopy(network), torch.randn(2, 4, 16, 16, 16)).half().save(str(folder / "model.pt"))
shape = [-1, 4, 16, 16, 16]
tensors = {"inputs": [{"name": "x", "shape": shape}], "outputs": [{"name": "y", "shape": shape}]}
(folder / "interface.json").write_text(json.dumps(tensors))
for graph in (False, True):
    session = Session(folder, "GPU", cuda_graph=graph)
    assert "aten::linalg_vector_norm" in str(session._module.graph)
    for batch in (1, 3, 16):
        x = torch.randn(batch, 4, 16, 16, 16)
        want = network(x).detach().numpy()
        y = session.run({"x": x.half().numpy()})["y"]
        there = torch.as_tensor(session.run_on_device({"x": x.half().cuda()})["y"])
        assert (y.dtype, there.device.type) == (np.float16, "cuda" if y.nbytes > THROUGH_HOST else "cpu")
        np.testing.assert_allclose(y, want, rtol=0, atol=0.03)
        np.testing.assert_allclose(there.cpu().numpy(), y, rtol=0, atol=0.004)  # what is fused differs by run
"""


def test_fp16_volumes_agree_with_the_cpu(run_python: Any, tmp_path: Path) -> None:
    run_python(VOLUMES, tmp_path)
