"""FLOPs by the frameworks' own counters, against figures that are published or made by hand."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest

from servegrid.domain.root import ROOT

BERT = """
import sys
sys.path[:0] = [sys.argv[1], sys.argv[2]]
import json, numpy as np, torch
from servegrid.frameworks.torch_network import TorchNetwork
from servegrid.domain.values import Interface
from model import get_model
tensors = lambda *names: [{"name": n, "dtype": "int32", "shape": [-1, 384]} for n in names]
io = Interface.model_validate(
    {"inputs": tensors("input__0", "input__1", "input__2"), "outputs": tensors("output__0", "output__1")})
with torch.device("meta"):
    network = TorchNetwork(get_model()[0], io, "meta")
one = {t.name: np.ones((1, 384), np.int32) for t in io.inputs}
attention = torch.nn.functional.scaled_dot_product_attention
class Fused(torch.nn.Module):
    def forward(self, q): return attention(q, q, q)
q = {"q": np.ones((2, 4, 64, 16), np.float32)}
parts = {"inputs": [{"name": "q", "dtype": "float32", "shape": [-1, 4, 64, 16]}],
         "outputs": [{"name": "y", "dtype": "float32", "shape": [-1, 4, 64, 16]}]}
fused = TorchNetwork(Fused(), Interface.model_validate(parts))
print(json.dumps([network.count(one), fused.count(q)]))
"""
RESNET = """
import sys
sys.path[:0] = [sys.argv[1], sys.argv[2]]
import json, keras, numpy as np
from servegrid.frameworks.tensorflow_network import TensorFlowNetwork
from servegrid.domain.values import Interface
from model import get_model
keras.initializers.VarianceScaling = lambda *_, **__: keras.initializers.Zeros()  # no weight is looked at
found = []
for architecture, side, classes in (("resnet50", 224, 1001), ("tiny", 32, 10)):
    io = Interface.model_validate({
        "inputs": [{"name": "input", "dtype": "float32", "shape": [-1, side, side, 3]}],
        "outputs": [{"name": "classes", "dtype": "int64", "shape": [-1, 1]},
                    {"name": "probabilities", "dtype": "float32", "shape": [-1, classes]}]})
    network = TensorFlowNetwork(*get_model(architecture, side, side, classes), io)
    batches = (1,) if architecture == "resnet50" else (1, 2)
    found.append([network.count({"input": np.zeros((n, side, side, 3), np.float32)}) for n in batches])
print(json.dumps(found))
"""


def counted(run_python: Callable[..., str], script: str, model: str) -> list[list[float]]:
    output = run_python(script, ROOT, ROOT / "models" / model)
    found: list[list[float]] = json.loads(output.splitlines()[-1])
    return found


def test_bert_large_takes_246_gflop_a_sample_of_384_tokens(run_python: Callable[..., str]) -> None:
    """24 layers of four 1024 x 1024 and two 1024 x 4096 products a token, attention over 384 tokens, and the
    head of two outputs (arXiv:1810.04805, section 3)."""
    tokens, width = 384, 1024
    a_layer = 2 * tokens * (4 * width**2 + 2 * width * 4096) + 2 * 2 * tokens**2 * width
    (flops, weights), (fused, _) = counted(run_python, BERT, "bert_large_qa")
    assert flops == 24 * a_layer + 2 * tokens * width * 2
    assert flops == pytest.approx(246e9, rel=0.002)
    assert weights == pytest.approx(334e6, rel=0.005)
    assert fused == 2 * 2 * 2 * 4 * 64 * 64 * 16  # queries by keys, and by values


def test_resnet_50_takes_8_2_gflop_an_image(run_python: Callable[..., str]) -> None:
    """4.1 multiply-adds an image (arXiv:1512.03385, table 1, has 3.8 of the version without the 1.5)."""
    (one,), (tiny, two) = counted(run_python, RESNET, "resnet50")
    assert one[0] == pytest.approx(8.2e9, rel=0.02)
    assert one[1] == pytest.approx(25.6e6, rel=0.01)
    assert two[0] == pytest.approx(2 * tiny[0], rel=0.001)
    # By hand: convolutions of 32 x 32 images, each output pixel x kernel x channels in x channels out.
    stem = 16 * 16 * 7 * 7 * 3 * 16
    blocks = [
        (side_in**2 * c_in * w + side**2 * (9 * w * w + w * 4 * w + c_in * 4 * w))
        for side_in, side, c_in, w in ((8, 8, 16, 16), (8, 4, 64, 32), (4, 2, 128, 64))
    ]
    products = 2 * (stem + sum(blocks) + 256 * 10)
    assert products < tiny[0] < 1.15 * products  # pointwise operators are counted, too
