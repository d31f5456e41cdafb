"""Sessions on an NVIDIA GPU: the answers of the CPU, at every batch size, with and without CUDA graphs.

Sums of 1024 products of normal numbers: fp32 gives them to about 1e-4, TF32 to about 1e-2.
"""

from __future__ import annotations

import json
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tritonclient.grpc import InferInput, InferRequestedOutput

from servegrid.domain.values import Interface, Tensor

pytestmark = pytest.mark.gpu

RUN = """
import json, sys
from importlib import import_module
from pathlib import Path
import numpy as np
artifact, session = Path(sys.argv[1]), import_module(f"servegrid.formats.{sys.argv[2]}.session").Session
rng = np.random.default_rng(0)
sizes = [1, 2, 3, 2, 8, 1]
batches = [rng.standard_normal((size, 1024)).astype(np.float32) for size in sizes]
kinds = {"cpu": ("CPU", {}), "gpu": ("GPU", {}), "graphs": ("GPU", {"cuda_graph": True})}
models = {name: session(artifact, kind, **more) for name, (kind, more) in kinds.items()}
answers = {name: [model.run({"x": x})["y"] for x in batches] for name, model in models.items()}
for name in ("gpu", "graphs"):
    for x, y, want in zip(batches, answers[name], answers["cpu"], strict=True):
        assert y.dtype == want.dtype
        np.testing.assert_allclose(y, want, rtol=0, atol=2e-3, err_msg=f"{name}, batch {len(x)}")
"""
TORCHSCRIPT = """
import sys, torch
class Network(torch.nn.Module):
    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.register_buffer("w", torch.randn(1024, 1024))
    def forward(self, x):
        made = torch.arange(x.shape[1], device=x.device)  # traced, it names the CPU
        return torch.relu(x @ self.w) + x + made / 1024
torch.jit.trace(Network(), torch.zeros(2, 1024)).save(sys.argv[1])
"""


def test_onnx_on_the_gpu_agrees_with_the_cpu(interface: Any, onnx_artifact: Any, run_python: Any) -> None:
    io = interface([("x", "float32", (-1, 1024))], [("y", "float32", (-1, 1024))])
    nodes = [("MatMul", ["x", "w"], ["h"], {}), ("Relu", ["h"], ["t"], {}), ("Add", ["t", "x"], ["y"], {})]
    weights = {"w": np.random.default_rng(1).standard_normal((1024, 1024)).astype(np.float32)}
    run_python(RUN, onnx_artifact(io, nodes, weights), "onnx")


def test_torchscript_on_the_gpu_agrees_with_the_cpu(run_python: Any, tmp_path: Path) -> None:
    tensors = {f"{kind}puts": [{"name": n, "shape": [-1, 1024]}] for kind, n in (("in", "x"), ("out", "y"))}
    (tmp_path / "interface.json").write_text(json.dumps(tensors))
    run_python(TORCHSCRIPT, tmp_path / "model.pt")
    run_python(RUN, tmp_path, "torchscript")


IMAGES = """
import sys
from pathlib import Path
import numpy as np
from servegrid.formats.onnx.session import Session
cpu = Session(Path(sys.argv[1]), "CPU")
rng = np.random.default_rng(0)
for graph in (False, True):
    gpu = Session(Path(sys.argv[1]), "GPU", cuda_graph=graph)
    for size in (1, 3, 16, 3):
        x = rng.standard_normal((size, 16, 20, 24)).astype(np.float16)
        np.testing.assert_allclose(gpu.run({"x": x})["y"], cpu.run({"x": x})["y"], rtol=0, atol=0.02)
"""


def test_fp16_images_on_the_gpu_agree_with_the_cpu(
    interface: Any, onnx_artifact: Any, run_python: Any
) -> None:
    shape = (-1, 16, 20, 24)
    io = interface([("x", "float16", shape)], [("y", "float16", shape)])
    conv = {"kernel_shape": [3, 3], "pads": [1, 1, 1, 1]}
    nodes = [
        ("Conv", ["x", "w", "b"], ["c"], conv),
        ("Add", ["c", "x"], ["s"], {}),
        ("Relu", ["s"], ["y"], {}),
    ]
    rng = np.random.default_rng(1)
    weights = {"w": rng.standard_normal((16, 16, 3, 3)) / 12, "b": rng.standard_normal(16)}
    halves = {name: array.astype(np.float16) for name, array in weights.items()}
    run_python(IMAGES, onnx_artifact(io, nodes, halves))


MIXED = """
import sys
from pathlib import Path
import numpy as np
from servegrid.formats.onnx.session import Session
cpu = Session(Path(sys.argv[1]), "CPU")
rng = np.random.default_rng(0)
for graph in (False, True):
    gpu = Session(Path(sys.argv[1]), "GPU", cuda_graph=graph)
    for size in (1, 3, 40, 3, 1):  # of 40 samples `x` is too large to share a copy
        inputs = {
            "a": rng.standard_normal((size, 1)).astype(np.float32),
            "b": rng.integers(-1000, 1000, (size, 3)).astype(np.int32),
            "c": rng.standard_normal((size, 5)).astype(np.float16),
            "x": rng.standard_normal((size, 1024)).astype(np.float32),
        }
        np.testing.assert_array_equal(gpu.run(inputs)["y"], cpu.run(inputs)["y"], err_msg=f"batch {size}")
"""


def test_inputs_of_several_types_and_sizes_arrive_complete(
    interface: Any, onnx_artifact: Any, run_python: Any
) -> None:
    columns = [("a", "float32", 1), ("b", "int32", 3), ("c", "float16", 5), ("x", "float32", 1024)]
    io = interface([(n, dtype, (-1, width)) for n, dtype, width in columns], [("y", "float32", (-1, 1033))])
    to_float = {"to": 1}
    nodes = [
        ("Cast", ["b"], ["fb"], to_float),
        ("Cast", ["c"], ["fc"], to_float),
        ("Concat", ["a", "fb", "fc", "x"], ["y"], {"axis": 1}),
    ]
    run_python(MIXED, onnx_artifact(io, nodes, {}))


IO = Interface(
    inputs=(Tensor(name="x", dtype="float32", shape=(-1, 1024)),),
    outputs=(Tensor(name="y", dtype="float32", shape=(-1, 1024)),),
)


@pytest.fixture(scope="module", params=["onnx", "ts-trace"])
def network(
    request: pytest.FixtureRequest, onnx_artifact: Any, run_python: Any, tmp_path_factory: Any
) -> tuple[str, Path]:
    if request.param == "onnx":
        weights = {"w": np.random.default_rng(1).standard_normal((1024, 1024)).astype(np.float32)}
        nodes = [("MatMul", ["x", "w"], ["h"], {}), ("Relu", ["h"], ["y"], {})]
        return "onnx", onnx_artifact(IO, nodes, weights)
    folder = tmp_path_factory.mktemp("traced")
    (folder / "interface.json").write_text(IO.model_dump_json())
    run_python(TORCHSCRIPT, folder / "model.pt")
    return "ts-trace", folder


@pytest.mark.parametrize("graph", [False, True])
def test_tensors_in_gpu_memory_stay_there(server: Any, network: tuple[str, Path], graph: bool) -> None:
    cuda = pytest.importorskip("tritonclient.utils.cuda_shared_memory", exc_type=RuntimeError)
    format_, artifact = network
    model = server.load(
        f"on_card_{format_}_{graph}", artifact, IO, format_=format_, batching="static", device_kind="gpu",
        cuda_graph=graph, max_batch_size=128,
    )  # fmt: skip
    rng = np.random.default_rng(0)
    with ExitStack() as stack:
        size = 128 * 1024 * 4
        regions = {}
        for name in ("card_in", "card_out"):
            regions[name] = cuda.create_shared_memory_region(name, size, 0)
            stack.callback(cuda.destroy_shared_memory_region, regions[name])
            server.client.register_cuda_shared_memory(name, cuda.get_raw_handle(regions[name]), 0, size)
            stack.callback(server.client.unregister_cuda_shared_memory, name)
        for batch in (1, 3, 128, 3):  # the answer to the largest stays on the card
            x = rng.standard_normal((batch, 1024)).astype(np.float32)
            want = server.ask(model, {"x": x})["y"]
            cuda.set_shared_memory_region(regions["card_in"], [x])
            cuda.set_shared_memory_region(regions["card_out"], [np.full_like(x, np.nan)])
            given, wanted = InferInput("x", x.shape, "FP32"), InferRequestedOutput("y")
            given.set_shared_memory("card_in", x.nbytes)
            wanted.set_shared_memory("card_out", x.nbytes)
            server.client.infer(model, [given], outputs=[wanted])
            found = cuda.get_contents_as_numpy(regions["card_out"], np.float32, x.shape)
            np.testing.assert_array_equal(found, want)
    server.client.unload_model(model)
