"""The hosted runtime over time: errors, its log, its memory; and that it reads only its artifact."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tritonclient.utils.shared_memory as shm
from tritonclient.grpc import InferenceServerException, InferInput, InferRequestedOutput

from servegrid.domain.root import ROOT
from servegrid.domain.values import Interface, Serving, Tensor
from servegrid.formats import FORMATS
from servegrid.formats.repository import write_repository
from servegrid.formats.runtime_files import session_file
from servegrid.frameworks.steps import parse_fields
from servegrid.host.environment import instruction_sets
from servegrid.loadgen.client.regions import unregister
from servegrid.servers.control import unload
from servegrid.store.job import Job

MB = 2**20
NO_COMPILER = [tool for tool in FORMATS["aoti"].tools if not shutil.which(tool)]
TABLE = np.linspace(-1.0, 1.0, 64, dtype=np.float32).reshape(16, 4)


@pytest.fixture(scope="module")
def lookup(interface: Any, onnx_artifact: Any) -> tuple[Path, Any]:
    """An artifact that looks rows up in TABLE, and raises for an index that is not there."""
    io = interface([("x", "int64", (-1, 1))], [("y", "float32", (-1, 1, 4))])
    return onnx_artifact(io, [("Gather", ["table", "x"], ["y"], {"axis": 0})], {"table": TABLE}), io


def test_a_request_that_raises_gets_the_error_and_the_next_one_works(server: Any, lookup: Any) -> None:
    model = server.load("lookup", *lookup)
    for _ in range(3):
        with pytest.raises(InferenceServerException, match=r"InvalidArgument.*out of data bounds"):
            server.ask(model, {"x": np.array([[3], [99]])})
        answer = server.ask(model, {"x": np.array([[3], [15]])})["y"]
        np.testing.assert_array_equal(answer, TABLE[[[3], [15]]])
    server.client.unload_model(model)


def test_every_request_of_a_batch_that_raises_gets_the_error(server: Any, lookup: Any) -> None:
    model = server.load("batch_raises", *lookup, preferred_batch_sizes=[8], max_queue_delay_us=300_000)

    def ask(index: int) -> str:
        try:
            server.ask(model, {"x": np.array([[index]])})
        except InferenceServerException as error:
            return str(error)
        return "answered"

    before = server.statistics(model).execution_count
    with ThreadPoolExecutor(8) as pool:
        answers = list(pool.map(ask, [99] * 8))
    assert server.statistics(model).execution_count - before < 8  # some shared a batch
    assert ["out of data bounds" in answer for answer in answers] == [True] * 8, answers
    np.testing.assert_array_equal(server.ask(model, {"x": np.array([[3]])})["y"], TABLE[[[3]]])
    server.client.unload_model(model)


def test_a_damaged_model_file_does_not_load(server: Any, lookup: Any, tmp_path: Path) -> None:
    (tmp_path / "model.onnx").write_bytes(b"not a model")
    with pytest.raises(InferenceServerException, match="Protobuf parsing failed"):
        server.load("broken", tmp_path, lookup[1])


def test_a_changed_byte_of_the_weights_does_not_go_unseen(server: Any, lookup: Any, tmp_path: Path) -> None:
    artifact, io = lookup
    copy = shutil.copytree(artifact, tmp_path / "copy")
    data = bytearray((copy / "model.onnx").read_bytes())
    place = data.index(TABLE.tobytes())
    data[place + TABLE.nbytes - 1] ^= 0x40  # the exponent of the last value
    (copy / "model.onnx").write_bytes(data)
    model = server.load("flipped", copy, io)
    every = np.arange(8)[:, None]
    np.testing.assert_array_equal(server.ask(model, {"x": every})["y"], TABLE[every])
    assert not np.array_equal(server.ask(model, {"x": every + 8})["y"], TABLE[every + 8])
    server.client.unload_model(model)


def test_a_session_may_return_its_input(server: Any, lookup: Any) -> None:
    io = lookup[1].model_copy(update={"outputs": lookup[1].inputs})
    write_repository(
        server.repository, "same", "onnx", Serving(batching="static", max_batch_size=8), io, lookup[0]
    )
    (server.repository / "same" / "1" / session_file("onnx")).write_text(SAME)
    server.client.load_model("same")
    x = np.arange(5)[:, None]
    np.testing.assert_array_equal(server.ask("same", {"x": x})["x"], x)
    server.client.unload_model("same")


SAME = """
class Session:
    def __init__(self, artifact, kind):
        pass
    def run(self, inputs):
        return inputs
"""
SCALE = Interface(
    inputs=(Tensor(name="x", dtype="float32", shape=(-1, 4)),),
    outputs=(Tensor(name="y", dtype="float32", shape=(-1, 4)),),
)
PLUGIN = """
import torch
class Scale(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.arange(4.0))
    def forward(self, x):
        return x * self.weight
def get_model():
    return Scale().eval(), {"inputs": ["x"], "outputs": ["y"]}
"""
LOADER = """
import numpy as np
def get_dataloader_fn():
    return lambda: iter([(np.arange(2), {"x": np.ones((2, 4), np.float32)}, {})])
"""


BUILD = """
import importlib, sys
from pathlib import Path
from servegrid.frameworks.steps import STEPS, read_job
for path in sys.argv[1:]:
    job = read_job(Path(path))
    module, _, function = STEPS[job.step].function.partition(":")
    getattr(importlib.import_module(module), function)(job)
"""


@pytest.fixture
def scale(run_python: Any, tmp_path: Path) -> Callable[..., Path]:
    """The artifact of a plug-in that multiplies `x` by 0, 1, 2, 3; the plug-in and its export are gone."""

    def make(exported: str, step: str, precision: str) -> Path:
        plugin = tmp_path / "models" / "scale"
        folders = {name: tmp_path / name for name in ("prepared", "source", "converted")}
        for folder in (plugin, *folders.values()):
            folder.mkdir(parents=True)
        (plugin / "model.py").write_text(PLUGIN)
        (plugin / "dataloader.py").write_text(LOADER)
        (folders["prepared"] / "parameters.json").write_text("{}")
        network = {"framework": "torch", "interface": SCALE, "parameters": {}}
        conversion = {"precision": precision, "tolerances": {"absolute": 1e-6, "cosine": 0.999}}
        if step == "compile_package":
            conversion |= {"machine": {"instruction_sets": instruction_sets()}}
        else:
            conversion |= {"scripted": exported == "ts-script"}
        for job_step, output, document in (
            ("export", "source", network | {"format": exported, "opset": None}),
            (step, "converted", conversion),
        ):
            fields = parse_fields(job_step, document)
            job = Job(step=job_step, fields=fields, inputs=folders, plugin=plugin, output=folders[output])
            (tmp_path / job_step).write_text(job.model_dump_json())
        run_python(BUILD, tmp_path / "export", tmp_path / step)
        for gone in (plugin.parent, folders["prepared"], folders["source"]):
            shutil.rmtree(gone)
        return folders["converted"]

    return make


@pytest.mark.parametrize(
    ("format_", "exported", "step", "precision"),
    [
        ("ts-trace", "ts-trace", "convert_torchscript", "fp32"),
        ("ts-trace", "ts-trace", "convert_torchscript", "bf16"),
        ("ts-script", "ts-script", "convert_torchscript", "bf16"),
        pytest.param(
            *("aoti", "torch-export", "compile_package", "fp32"),
            marks=[
                pytest.mark.check,
                pytest.mark.skipif(bool(NO_COMPILER), reason=f"not installed: {NO_COMPILER}"),
            ],
        ),
    ],
)
def test_the_artifact_is_served_without_the_plug_in_that_made_it(
    server: Any, scale: Any, format_: str, exported: str, step: str, precision: str
) -> None:
    artifact = scale(exported, step, precision)
    io = Interface.model_validate_json((artifact / "interface.json").read_text())
    assert io == SCALE  # of float32, in bf16, too
    model = server.load("scale", artifact, io, format_=format_)
    for batch in (1, 3):  # it was exported with 2
        answer = server.ask(model, {"x": np.full((batch, 4), 2.0, np.float32)})["y"]
        np.testing.assert_array_equal(answer, np.tile([0.0, 2.0, 4.0, 6.0], (batch, 1)))
    stub = server.stub(model)
    mapped = {region.path for region in stub.memory_maps()} | {file.path for file in stub.open_files()}
    assert any("libtorch" in path for path in mapped)
    assert not [path for path in mapped if path.startswith((str(ROOT / "models"), str(ROOT / "servegrid")))]
    server.client.unload_model(model)


def test_bf16_weights_are_in_bf16(scale: Any, run_python: Any) -> None:
    script = "import sys, torch; print({p.dtype for p in torch.jit.load(sys.argv[1]).parameters()})"
    artifact = scale("ts-trace", "convert_torchscript", "bf16")
    assert run_python(script, artifact / "model.pt").strip() == "{torch.bfloat16}"


def test_a_package_of_another_cpu_is_refused(server: Any, tmp_path: Path) -> None:
    (tmp_path / "built_for.json").write_text('{"instruction_sets": ["avx2048"]}')
    static = Serving(batching="static", max_batch_size=4)
    server.write("elsewhere", tmp_path, SCALE, format_="aoti", serving=static)
    with pytest.raises(InferenceServerException, match="avx2048"):
        server.client.load_model("elsewhere")


@pytest.fixture
def float_identity(server: Any, interface: Any, onnx_artifact: Any) -> str:
    io = interface([("x", "float32", (-1, -1))], [("y", "float32", (-1, -1))])
    artifact = onnx_artifact(io, [("Identity", ["x"], ["y"], {})])
    name: str = server.load("floats", artifact, io)
    return name


def test_memory_does_not_grow_with_requests(server: Any, float_identity: str) -> None:
    x = np.arange(MB // 4, dtype=np.float32).reshape(1, -1)
    stub = server.stub(float_identity)
    name = f"{server.running.shm_prefix}memory"
    region = shm.create_shared_memory_region(name, f"/{name}", 2 * MB)
    server.client.register_system_shared_memory(name, f"/{name}", 2 * MB)
    try:
        shm.set_shared_memory_region(region, [x])
        entry, wanted = InferInput("x", x.shape, "FP32"), InferRequestedOutput("y")
        entry.set_shared_memory(name, MB)
        wanted.set_shared_memory(name, MB, offset=MB)

        def send(count: int) -> int:
            for _ in range(count):
                server.client.infer(float_identity, [entry], outputs=[wanted])
            return int(stub.memory_info().rss)

        before = send(100)
        after = send(3000)
        np.testing.assert_array_equal(shm.get_contents_as_numpy(region, np.float32, x.shape, offset=MB), x)
    finally:
        unregister(server.client, name)
        shm.destroy_shared_memory_region(region)
    assert after - before < 50 * MB


def test_the_log_has_no_traceback_and_no_warning_from_answers(server: Any, float_identity: str) -> None:
    start = len(server.log)
    for size in (1, 2, 8):
        server.ask(float_identity, {"x": np.zeros((size, 3), np.float32)})
    unload(server.client, float_identity, timeout_s=10.0)  # what a destructor prints, it prints by now
    logged = server.log[start:]
    for noise in ("PyCapsule", "Traceback", "Warning", "ValueError"):
        assert noise not in logged
