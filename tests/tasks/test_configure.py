"""`config.pbtxt`: what is written, and that a real server takes it."""

from __future__ import annotations

import itertools
import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from google.protobuf import text_format
from tritonclient.grpc import model_config_pb2 as pb

from servegrid.domain.errors import UnsupportedError
from servegrid.domain.plugins import load_profile
from servegrid.domain.releases import load_releases
from servegrid.domain.server import ServerCapabilities
from servegrid.domain.values import ArtifactRef, Format, Interface, Serving
from servegrid.formats import FORMATS
from servegrid.formats.repository import model_config, write_repository
from servegrid.formats.trt import format as trt
from servegrid.plan.matrix import expand
from servegrid.plan.models import load_model
from servegrid.plan.selection import Selection
from servegrid.store.build import Workplace
from servegrid.store.site import Site
from tasks.configure import configure

SERVINGS = {
    "static": Serving(batching="static", max_batch_size=8),
    "dynamic": Serving(
        batching="dynamic",
        max_batch_size=16,
        preferred_batch_sizes=(8, 16),
        max_queue_delay_us=100,
        instances=2,
    ),
    "disabled": Serving(batching="disabled", max_batch_size=0, device_kind="gpu"),
}
TENSORS = """
input { name: "x__0" data_type: TYPE_INT64 dims: 384 }
input { name: "x__1" data_type: TYPE_BOOL dims: -1 dims: 3 }
output { name: "y__0" data_type: TYPE_FP16 dims: 384 }
"""
WHOLE_TENSORS = """
input { name: "x__0" data_type: TYPE_INT64 dims: -1 dims: 384 }
input { name: "x__1" data_type: TYPE_BOOL dims: -1 dims: -1 dims: 3 }
output { name: "y__0" data_type: TYPE_FP16 dims: -1 dims: 384 }
"""
BATCHING = {
    "static": TENSORS + "max_batch_size: 8 instance_group { count: 1 kind: KIND_CPU }",
    "dynamic": TENSORS
    + """max_batch_size: 16 instance_group { count: 2 kind: KIND_CPU }
    dynamic_batching {
      preferred_batch_size: 8 preferred_batch_size: 16 max_queue_delay_microseconds: 100
    }""",
    "disabled": WHOLE_TENSORS + "max_batch_size: 0 instance_group { count: 1 kind: KIND_GPU }",
}
HOW = {
    ("onnx", "native"): 'backend: "onnxruntime" default_model_filename: "model.onnx"',
    (
        "ts-trace",
        "native",
    ): """backend: "pytorch" platform: "pytorch_libtorch" default_model_filename: "model.pt"
    parameters { key: "INFERENCE_MODE" value { string_value: "true" } }""",
    ("onnx", "hosted"): """backend: "python"
    parameters { key: "session" value { string_value: "onnx" } }""",
    ("trt", "native"): 'backend: "tensorrt" default_model_filename: "model.plan"',
    ("trt", "hosted"): """backend: "python"
    parameters { key: "session" value { string_value: "trt" } }""",
    ("ts-trace", "hosted"): """backend: "python"
    parameters { key: "session" value { string_value: "torchscript" } }""",
}
CASES = [(*how, serving) for how, serving in itertools.product(HOW, SERVINGS)]


@pytest.fixture(autouse=True)
def tensorrt_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    """The native configs are those of a host whose engines are TensorRT's: TensorRT-RTX's are hosted only."""
    monkeypatch.setattr(trt, "library", lambda: "tensorrt")


@pytest.fixture
def io(interface: Any) -> Interface:
    found: Interface = interface(
        [("x__0", "int64", (-1, 384)), ("x__1", "bool", (-1, -1, 3))], [("y__0", "float16", (-1, 384))]
    )
    return found


@pytest.fixture
def artifact(tmp_path: Path) -> Path:
    """Model files that no server reads: the test is whether the server gets as far as reading them."""
    folder = tmp_path / "artifact"
    folder.mkdir()
    for known in FORMATS.values():
        (folder / known.file).write_bytes(b"model")
    return folder


@pytest.mark.parametrize(("format_", "backend", "serving"), CASES)
def test_config_equals_the_serving(
    format_: Format, backend: str, serving: str, io: Interface, artifact: Path, tmp_path: Path
) -> None:
    chosen = SERVINGS[serving].model_copy(update={"backend": backend})
    write_repository(tmp_path / "repository", "it", format_, chosen, io, artifact)
    text = (tmp_path / "repository" / "it" / "config.pbtxt").read_text()
    golden = f'name: "it" {HOW[format_, backend]} {BATCHING[serving]}'
    if (backend, serving) == ("hosted", "disabled") and format_ in ("onnx", "ts-trace"):  # on a GPU
        golden += 'parameters { key: "FORCE_CPU_ONLY_INPUT_TENSORS" value { string_value: "no" } }'
    assert text_format.Parse(text, pb.ModelConfig()) == text_format.Parse(golden, pb.ModelConfig())


def test_hosted_repository_holds_the_runtime_one_session_and_a_link_to_the_artifact(
    io: Interface, artifact: Path, tmp_path: Path
) -> None:
    write_repository(tmp_path, "it", "onnx", SERVINGS["static"], io, artifact)
    version = tmp_path / "it" / "1"
    assert sorted(p.relative_to(version).as_posix() for p in version.rglob("*.py")) == [
        "formats/onnx/session.py", "hosting/model.py", "hosting/onnx_options.py", "hosting/outputs.py",
        "hosting/pipeline.py", "hosting/threads.py", "model.py",
    ]  # fmt: skip
    assert (version / "artifact").readlink() == artifact


@pytest.mark.parametrize(
    ("device", "batching", "pipelined"),
    [("gpu", "dynamic", True), ("gpu", "static", False), ("cpu", "dynamic", False)],
)
def test_only_dynamic_batching_on_a_gpu_is_pipelined(
    io: Interface, device: str, batching: str, pipelined: bool
) -> None:
    serving = Serving.model_validate({"batching": batching, "max_batch_size": 8, "device_kind": device})
    assert ("pipelined" in model_config("it", "onnx", serving, io).parameters) == pipelined


@pytest.mark.parametrize(
    ("format_", "device", "batching", "stays"),
    [
        ("onnx", "gpu", "static", True),
        ("ts-trace", "gpu", "static", True),
        ("onnx", "gpu", "dynamic", False),
        ("onnx", "cpu", "static", False),
        ("tf-savedmodel", "gpu", "static", False),
    ],
)
def test_tensors_stay_on_the_gpu_where_the_session_takes_them_and_nothing_is_joined(
    io: Interface, format_: Any, device: str, batching: str, stays: bool
) -> None:
    serving = Serving.model_validate({"batching": batching, "max_batch_size": 8, "device_kind": device})
    parameters = model_config("it", format_, serving, io).parameters
    assert ("FORCE_CPU_ONLY_INPUT_TENSORS" in parameters) == stays
    assert not stays or parameters["FORCE_CPU_ONLY_INPUT_TENSORS"].string_value == "no"


def test_a_second_write_leaves_nothing_of_the_first(io: Interface, artifact: Path, tmp_path: Path) -> None:
    write_repository(tmp_path, "it", "ts-trace", SERVINGS["static"], io, artifact)
    native = SERVINGS["static"].model_copy(update={"backend": "native"})
    write_repository(tmp_path, "it", "onnx", native, io, artifact)
    assert sorted(p.name for p in (tmp_path / "it" / "1").iterdir()) == ["model.onnx"]
    assert (artifact / "model.pt").read_bytes() == b"model", "the artifact behind the link was touched"


def test_tensor_with_no_axis_but_the_batch_is_reshaped(interface: Any) -> None:
    io = interface([("x", "float32", (-1,)), ("z", "int64", (-1, 3))], [("y", "float32", (-1,))])
    config = model_config("it", "onnx", SERVINGS["static"], io)
    expected = pb.ModelConfig()
    text_format.Parse(
        """input { name: "x" data_type: TYPE_FP32 dims: 1 reshape { shape: [] } }
        input { name: "z" data_type: TYPE_INT64 dims: 3 }
        output { name: "y" data_type: TYPE_FP32 dims: 1 reshape { shape: [] } }""",
        expected,
    )
    assert (list(config.input), list(config.output)) == (list(expected.input), list(expected.output))
    unbatched = Serving(batching="disabled", max_batch_size=0)
    fixed = interface([("x", "float32", (4,))], [("y", "float32", (4,))])
    (tensor,) = model_config("it", "onnx", unbatched, fixed).input
    assert (list(tensor.dims), tensor.HasField("reshape")) == ([4], False)


@pytest.mark.parametrize("serving", SERVINGS)
@pytest.mark.parametrize(
    "format_", [name for name in FORMATS if name != "aoti"]
)  # 2.51 does not know its platform
def test_native_config_lacks_nothing_but_the_backend(
    format_: Format, serving: str, io: Interface, artifact: Path, server: Any
) -> None:
    # The wheel's server has no GPU here; the kind of device does not change what is checked.
    native = SERVINGS[serving].model_copy(update={"backend": "native", "device_kind": "cpu"})
    name = f"native-{format_}-{serving}"
    write_repository(server.repository, name, format_, native, io, artifact)
    message, _ = server.refusal(name)
    assert f"unable to find backend library for backend '{FORMATS[format_].native.name}'" in message


def test_the_server_refuses_a_preferred_batch_size_over_the_maximum(
    io: Interface, artifact: Path, server: Any
) -> None:
    wrong = Serving(batching="dynamic", max_batch_size=8, preferred_batch_sizes=(16,), backend="native")
    write_repository(server.repository, "over", "onnx", wrong, io, artifact)
    message, log = server.refusal("over")
    assert "unable to find backend library" not in message
    assert "dynamic batching preferred size must be <= max batch size for over" in log


def test_the_server_refuses_a_field_that_it_does_not_know(io: Interface, artifact: Path, server: Any) -> None:
    native = SERVINGS["static"].model_copy(update={"backend": "native"})
    write_repository(server.repository, "unknown", "onnx", native, io, artifact)
    with (server.repository / "unknown" / "config.pbtxt").open("a") as file:
        file.write("no_such_field: 3\n")
    message, log = server.refusal("unknown")
    assert "unable to find backend library" not in message
    assert 'has no field named "no_such_field"' in log


@pytest.mark.parametrize(
    ("inputs", "outputs", "wrong"),
    [
        (["x__0", "ids"], ["y__0"], r"NAME__1\b.*'ids'"),
        (["x__1", "x__0"], ["y__0"], r"NAME__0\b.*'x__1'"),
        (["x__0"], ["y__0", "y__2"], r"NAME__1\b.*'y__2'"),
        (["__0"], ["y__0"], r"NAME__0\b.*'__0'"),
        (["x__0y"], ["y__0"], r"NAME__0\b.*'x__0y'"),
    ],
)
def test_native_torchscript_is_refused_for_names_without_their_position(
    inputs: list[str], outputs: list[str], wrong: str, interface: Any
) -> None:
    io = interface([(n, "int64", (-1, 2)) for n in inputs], [(n, "int64", (-1, 2)) for n in outputs])
    native = SERVINGS["static"].model_copy(update={"backend": "native"})
    with pytest.raises(UnsupportedError, match=wrong):
        model_config("it", "ts-trace", native, io)
    assert model_config("it", "ts-trace", SERVINGS["static"], io).backend == "python"
    assert model_config("it", "onnx", native, io).backend == "onnxruntime"


def test_native_torchscript_takes_names_with_their_position(io: Interface) -> None:
    assert FORMATS["ts-trace"].native.why_not(io, 8) is None


def test_engine_of_tensorrt_rtx_is_hosted_only(io: Interface, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trt, "library", lambda: "tensorrt-rtx")
    native = SERVINGS["static"].model_copy(update={"backend": "native"})
    with pytest.raises(UnsupportedError, match="TensorRT-RTX"):
        model_config("it", "trt", native, io)
    assert model_config("it", "trt", SERVINGS["static"], io).backend == "python"


@pytest.mark.parametrize(("built", "fits"), [("8.0.3.4", True), ("8.0.1.6", False)])
def test_engine_of_another_tensorrt_than_the_releases_is_not_served_natively(
    built: str, fits: bool, io: Interface, artifact: Path, site: Site, tmp_path: Path
) -> None:
    """Built in another environment, whose version the plan did not see."""
    profile = load_profile(site.profiles, "a30").model_copy(
        update={"environments": {"trt": Path("/opt/trt")}}
    )
    (cell,) = expand(
        load_model(site.models, "bert_large_qa").spec,
        "tiny",
        profile,
        ServerCapabilities(release="21.10", backends=("tensorrt",)),
        Selection(formats=("trt",), precisions=("fp16",)),
        load_releases(),
    ).cells
    at = Workplace(
        site=site.model_copy(update={"home": tmp_path}),
        plugin=tmp_path,
        logs=tmp_path,
        profile="a30",
        cell=cell.name,
        timeout_s=1,
    )
    stored = at.site.store.root / "engine"
    shutil.copytree(artifact, stored)
    (stored / "interface.json").write_text(io.model_dump_json())
    (stored / "engine.json").write_text(json.dumps({"library": "tensorrt", "version": built}))
    ref = ArtifactRef(digest="aa", path="engine", size=1)
    if fits:
        made = configure.fn(cell, ref, tmp_path / "repository", at)
        assert json.loads(made.dynamic)["backend"] == "tensorrt"
    else:
        with pytest.raises(UnsupportedError, match=r"8\.0\.3\.4.*8\.0\.1\.6"):
            configure.fn(cell, ref, tmp_path / "repository", at)
