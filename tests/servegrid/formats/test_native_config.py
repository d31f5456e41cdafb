"""The configs of native backends: accelerators, CUDA graphs and warm-up; a real server reads them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from google.protobuf import text_format
from tritonclient.grpc import model_config_pb2 as pb

from servegrid.domain.values import Format, Interface, Serving
from servegrid.formats import FORMATS
from servegrid.formats.native_config import Acceleration, add_native
from servegrid.formats.repository import model_config, write_repository

GPU = Serving(
    batching="dynamic",
    max_batch_size=8,
    preferred_batch_sizes=(4,),
    device_kind="gpu",
    backend="native",
    cuda_graph=True,
    warm_up_batch_sizes=(1, 8),
)
TRT = Acceleration(accelerator="trt", precision="fp16", workspace_bytes=1 << 30)
AMP = Acceleration(accelerator="amp", precision="fp16")
WARM = """
model_warmup { name: "batch_1" batch_size: 1
  inputs { key: "x__0" value { data_type: TYPE_INT64 dims: 4 zero_data: true } } }
model_warmup { name: "batch_8" batch_size: 8
  inputs { key: "x__0" value { data_type: TYPE_INT64 dims: 4 zero_data: true } } }
"""
REST = """
name: "it" max_batch_size: 8
input { name: "x__0" data_type: TYPE_INT64 dims: 4 } output { name: "y__0" data_type: TYPE_FP32 dims: 4 }
instance_group { count: 1 kind: KIND_GPU }
dynamic_batching { preferred_batch_size: 4 max_queue_delay_microseconds: 1 }
optimization { cuda { graphs: true } }
"""
CASES = {
    "onnx-trt": (
        "onnx",
        TRT,
        """backend: "onnxruntime" default_model_filename: "model.onnx"
        optimization { execution_accelerators { gpu_execution_accelerator { name: "tensorrt"
          parameters { key: "precision_mode" value: "FP16" }
          parameters { key: "max_workspace_size_bytes" value: "1073741824" }
          parameters { key: "trt_engine_cache_enable" value: "1" }
          parameters { key: "trt_engine_cache_path" value: "/tmp/servegrid-engines" }
          parameters { key: "trt_cuda_graph_enable" value: "1" } } } }""",
    ),
    "tf-savedmodel-trt": (
        "tf-savedmodel",
        TRT,
        """backend: "tensorflow" platform: "tensorflow_savedmodel" default_model_filename: "model.savedmodel"
        optimization { execution_accelerators { gpu_execution_accelerator { name: "tensorrt"
          parameters { key: "precision_mode" value: "FP16" }
          parameters { key: "max_workspace_size_bytes" value: "1073741824" } } } }""",
    ),
    "tf-savedmodel-amp": (
        "tf-savedmodel",
        AMP,
        """backend: "tensorflow" platform: "tensorflow_savedmodel" default_model_filename: "model.savedmodel"
        optimization { execution_accelerators { gpu_execution_accelerator {
          name: "auto_mixed_precision" } } }""",
    ),
    "ts-script": (
        "ts-script",
        Acceleration(),
        """backend: "pytorch" platform: "pytorch_libtorch" default_model_filename: "model.pt"
        parameters { key: "INFERENCE_MODE" value { string_value: "true" } }""",
    ),
}


@pytest.fixture
def io(interface: Any) -> Interface:
    found: Interface = interface([("x__0", "int64", (-1, 4))], [("y__0", "float32", (-1, 4))])
    return found


@pytest.mark.parametrize("case", CASES)
def test_config_has_the_accelerator_and_the_serving(case: str, io: Interface) -> None:
    format_, acceleration, golden = CASES[case]
    config = model_config("it", format_, GPU, io, acceleration)  # type: ignore[arg-type]
    expected = pb.ModelConfig()
    for text in (REST, golden, WARM):
        expected.MergeFrom(text_format.Parse(text, pb.ModelConfig()))
    assert config == expected


@pytest.mark.parametrize("case", CASES)
def test_accelerated_config_lacks_nothing_but_the_backend(
    case: str, io: Interface, server: Any, tmp_path: Path
) -> None:
    format_: Format
    format_, acceleration, _ = CASES[case]  # type: ignore[assignment]
    (tmp_path / FORMATS[format_].file).write_bytes(b"model")
    # The wheel's server has no GPU here; the kind of device does not change what is checked.
    serving = GPU.model_copy(update={"device_kind": "cpu"})
    name = f"accelerated-{case}"
    write_repository(server.repository, name, format_, serving, io, tmp_path, acceleration)
    message, _ = server.refusal(name)
    assert f"unable to find backend library for backend '{FORMATS[format_].native.name}'" in message


@pytest.mark.parametrize(
    ("old", "new", "wrong"),
    [
        ("preferred_batch_size: 4", "preferred_batch_size: 9", "preferred size must be <= max batch size"),
        ("data_type: TYPE_INT64", "data_type: TYPE_INT65", "TYPE_INT65"),
        ('key: "precision_mode"', 'kee: "precision_mode"', 'has no field named "kee"'),
    ],
)
def test_wrong_config_fails_otherwise(
    old: str, new: str, wrong: str, io: Interface, server: Any, tmp_path: Path
) -> None:
    (tmp_path / "model.onnx").write_bytes(b"model")
    serving = GPU.model_copy(update={"device_kind": "cpu"})
    write_repository(server.repository, "wrong", "onnx", serving, io, tmp_path, TRT)
    path = server.repository / "wrong" / "config.pbtxt"
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new, 1))
    message, log = server.refusal("wrong")
    assert "unable to find backend library" not in message
    assert wrong in message + log


def test_tensorrt_has_a_graph_for_each_known_batch_size(io: Interface, interface: Any) -> None:
    def graphs(tensors: Interface) -> list[tuple[int, dict[str, list[int]]]]:
        config = model_config("it", "onnx", GPU, tensors)
        config.backend = "tensorrt"
        add_native(config, "trt", GPU, tensors, Acceleration())
        specs = config.optimization.cuda.graph_spec
        return [(s.batch_size, {name: list(v.dim) for name, v in s.input.items()}) for s in specs]

    assert graphs(io) == [(size, {"x__0": [4]}) for size in (1, 4, 8)]
    free = interface([("x__0", "int64", (-1, -1))], [("y__0", "float32", (-1, 4))])
    assert graphs(free) == []


def test_aoti_is_a_platform_of_its_own(io: Interface) -> None:
    serving = Serving(batching="disabled", max_batch_size=0, backend="native")
    config = pb.ModelConfig(backend="pytorch")
    add_native(config, "aoti", serving, io, Acceleration())
    assert config == pb.ModelConfig(backend="pytorch", platform="torch_aoti")


def test_label_of_tf_trt_writes_no_accelerator(io: Interface) -> None:
    config = pb.ModelConfig(backend="tensorflow")
    add_native(config, "tf-trt", GPU, io, TRT)
    assert not config.optimization.execution_accelerators.gpu_execution_accelerator


def test_hosted_model_is_warmed_up_as_it_loads(server: Any, interface: Any, onnx_artifact: Any) -> None:
    io = interface([("x", "int64", (-1, 3))], [("y", "int64", (-1, 3))])
    artifact = onnx_artifact(io, [("Identity", ["x"], ["y"], {})])
    server.load("warm", artifact, io, warm_up_batch_sizes=[1, 8])
    assert [entry.batch_size for entry in server.statistics("warm").batch_stats] == [1, 8]
    x = np.full((2, 3), 3)
    np.testing.assert_array_equal(server.ask("warm", {"x": x})["y"], x)
