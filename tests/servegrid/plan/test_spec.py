"""Specs from YAML: an error names file, key and the expected value."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import onnx
import pytest
import yaml

from servegrid.domain.errors import UserError
from servegrid.domain.names import NEWEST_OPSET
from servegrid.domain.profile import GpuProfile
from servegrid.domain.spec import ModelSpec
from servegrid.domain.yaml_files import load_yaml
from servegrid.plan.spec_rules import load_spec


def message_of(path: Path, data: object) -> str:
    """The error of `load_yaml` for this model.yaml, without the file's name in front."""
    path.write_text(data if isinstance(data, str) else yaml.safe_dump(data))
    with pytest.raises(UserError) as caught:
        load_spec(path)
    assert str(caught.value).startswith(f"{path}: ")
    return str(caught.value).removeprefix(f"{path}: ")


def change(data: dict[str, Any], where: str, value: object) -> dict[str, Any]:
    """Set (or, with `...`, remove) the entry at a dotted path."""
    *parents, last = where.split(".")
    part: Any = data
    for name in parents:
        part = part[int(name) if name.isdigit() else name]
    if value is ...:
        del part[last]
    else:
        part[last] = value
    return data


def tensor(name: str) -> dict[str, Any]:
    return {"name": name, "dtype": "float32", "shape": ["batch"]}


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "model.yaml"


def test_complete_file_is_read(path: Path, model_data: dict[str, Any], spec: ModelSpec) -> None:
    path.write_text(yaml.safe_dump(model_data))
    assert load_spec(path) == spec
    assert spec.variants["tiny"].step_timeout_s == 1800


@pytest.mark.parametrize(
    ("where", "value", "message"),
    [
        ("opsett", 13, "opsett: no such key; take it out or correct its spelling"),
        ("variants.tiny.serving.batch", 1, "variants.tiny.serving.batch: no such key"),
        ("opset", ..., "opset: this key is required"),
        ("variants.tiny.metric.threshold", ..., "variants.tiny.metric: threshold: "),
        ("opset", "new", "opset: Input should be a valid integer"),
        ("opset", "new", "(found 'new')"),
        ("opset", 0, "opset: Input should be greater than or equal to 1 (found 0)"),
        ("framework", "jax", "framework: Input should be 'torch', 'tensorflow'"),
        ("inputs", [], "inputs: "),
        (
            "formats.onnx.precisions",
            ["fp32", "bf16"],
            "formats.onnx.precisions: fp32, fp16, int8 are built, not bf16",
        ),
        (
            "variants.tiny.convert",
            {"onnx": {"optimize": {"model_type": "bert", "num_heads": 2, "hidden_size": 8, "fused": {}}}},
            "variants.tiny.convert.onnx.optimize.fused: Dictionary should have at least 1 item",
        ),
        (
            "variants.tiny.convert",
            {"onnx": {"int8": {"samples": 0}}},
            "variants.tiny.convert.onnx.int8.samples: Input should be greater than or equal to 1",
        ),
        (
            "formats.onnx.export",
            "tf-savedmodel",
            "formats.onnx.export: torch exports ts-trace, ts-script",
        ),
        ("tolerances.fp32.outputs", {"no": {"absolute": 1, "cosine": 1}}, "outputs.no: no such output"),
        (
            "variants.tiny.convert",
            {"shapes": {"nobody": {"min": [1], "opt": [1], "max": [1]}}},
            "variants.tiny.convert.shapes.nobody: [1] fits no input of that name",
        ),
        ("variants.tiny.metric.better", "more", "metric.better: Input should be 'higher' or 'lower'"),
        ("inputs.0.dtype", "int", "inputs.0.dtype: Input should be 'bool', 'uint8'"),
        ("inputs.0.shape", [], "inputs.0.shape: "),
        ("formats.openvino", {"export": "onnx", "precisions": ["fp32"]}, "formats.openvino"),
        (
            "formats.openvino",
            {"export": "onnx", "precisions": ["fp32"]},
            "'tf-savedmodel' or 'tf-trt' (found 'openvino')",
        ),
        ("formats.ts-trace.precisions", ["int8"], "formats.ts-trace.precisions: fp32, fp16, bf16 are built"),
        (
            "formats.tf-trt",
            {"export": "onnx", "precisions": ["fp32"]},
            "formats.tf-trt.export: it is made of",
        ),
        ("formats.onnx.export", "ts-trace", "formats.onnx.export: it is made of onnx, not of ts-trace"),
        ("formats.onnx.precisions", ["fp8"], "formats.onnx.precisions.0: Input should be 'fp32'"),
        ("tolerances.fp32.absolute", 0, "tolerances.fp32.absolute: Input should be greater than 0"),
        ("tolerances.fp32.absolute", float("nan"), "tolerances.fp32.absolute: "),
        ("tolerances.fp32.cosine", 1.5, "tolerances.fp32.cosine: Input should be less than or equal to 1"),
        ("variants", ["tiny"], "variants: Input should be a valid dictionary (found ['tiny'])"),
        ("variants.tiny.serving.max_queue_delay_us", -1, "max_queue_delay_us: "),
        ("variants.tiny.offline.batch_sizes", [0], "variants.tiny.offline.batch_sizes.0: "),
        # With none of these a cell has no points to measure, or there is no cell at all.
        ("variants.tiny.offline.batch_sizes", [], "variants.tiny.offline.batch_sizes: "),
        ("variants.tiny.online.concurrency", [], "variants.tiny.online.concurrency: "),
        ("variants.tiny.serving.instances", [], "variants.tiny.serving.instances: "),
        # Triton's configuration has int32.
        ("variants.tiny.serving.max_batch_size", 2**31, "variants.tiny.serving.max_batch_size: "),
        ("variants.tiny.serving.max_queue_delay_us", 2**31, "variants.tiny.serving.max_queue_delay_us: "),
        ("variants.tiny.serving.load_timeout_s", 99999999999999, "variants.tiny.serving.load_timeout_s: "),
        ("variants.tiny.online.window_s", float("inf"), "variants.tiny.online.window_s: "),
        ("variants.tiny.metric.threshold", float("nan"), "variants.tiny.metric.threshold: "),
        ("variants.tiny.metric.drop.fp32", float("inf"), "variants.tiny.metric.drop.fp32: "),
        ("variants.tiny.metric.drop.fp32", -1, "variants.tiny.metric.drop.fp32: "),
        ("tolerances.fp32.absolute", float("inf"), "tolerances.fp32.absolute: "),
        ("opset", 999, "opset: "),
        ("inputs.0.name", "", "inputs.0.name: "),
        ("inputs.0.name", " x", "inputs.0.name: "),
        ("inputs.0.name", "../x", "inputs.0.name: "),
        ("outputs.0.name", "a/../../x", "outputs.0.name: "),
        ("outputs.0.name", "x\ny", "outputs.0.name: "),
        ("outputs.0.name", "x" * 300, "outputs.0.name: "),
        (
            "outputs",
            [tensor("y"), tensor("y")],
            "outputs: two have the name",
        ),
        ("inputs", [tensor("x"), tensor("x")], "inputs: two have the name"),
        ("inputs.0.shape", ["batch", 0], "inputs.x.shape: 0"),
        ("outputs.0.shape", ["batch", -7], "outputs.y.shape: -7"),
        ("inputs.0.shape", ["batch", 2**31], "inputs.x.shape: "),
        ("inputs.0.shape", ["batch", True], "inputs.0.shape.1"),
        ("inputs.0.shape", ["batch", ""], "variants.tiny.parameters.: "),
        ("variants.tiny.parameters.length", float("inf"), "variants.tiny.parameters.length"),
        ("variants.tiny.parameters", {"a b": 1}, "variants.tiny.parameters.a b"),
        # Each would be a cell, or a point, twice.
        ("formats.onnx.precisions", ["fp32", "fp32"], "formats.onnx.precisions: "),
        ("variants.tiny.serving.instances", [1, 1], "variants.tiny.serving.instances: "),
        ("variants.tiny.offline.batch_sizes", [8, 1, 8], "variants.tiny.offline.batch_sizes: "),
    ],
)
def test_error_names_the_wrong_entry_and_the_expected_value(
    path: Path, model_data: dict[str, Any], where: str, value: object, message: str
) -> None:
    assert message in message_of(path, change(model_data, where, value))


@pytest.mark.parametrize("name", ["/model/embed/Gather_output_0", "serving_default_x:0", "ünï", "a b", "..x"])
def test_tensor_names_of_other_frameworks_are_taken(model_data: dict[str, Any], name: str) -> None:
    assert ModelSpec.model_validate(change(model_data, "inputs.0.name", name)).inputs[0].name == name


def test_newest_opset_is_that_of_the_installed_onnx() -> None:
    assert onnx.defs.onnx_opset_version() <= NEWEST_OPSET


def test_every_wrong_entry_is_in_the_one_message(path: Path, model_data: dict[str, Any]) -> None:
    data = change(change(model_data, "opset", ...), "naem", "x")
    assert message_of(path, data) == (
        "opset: this key is required; naem: no such key; take it out or correct its spelling"
    )


def test_precision_that_a_format_uses_needs_a_tolerance(path: Path, model_data: dict[str, Any]) -> None:
    message = message_of(path, change(model_data, "tolerances.fp16", ...))
    assert "tolerances: no entry for precision 'fp16', which formats use" in message


def test_precision_that_a_format_uses_needs_a_drop(path: Path, model_data: dict[str, Any]) -> None:
    message = message_of(path, change(model_data, "variants.tiny.metric.drop.fp16", ...))
    assert "variants.tiny.metric.drop: no entry for precision 'fp16'" in message


def test_precision_that_no_format_uses_needs_neither(path: Path, model_data: dict[str, Any]) -> None:
    change(model_data, "formats.ts-trace.precisions", ["fp32"])
    change(model_data, "tolerances.fp16", ...)
    path.write_text(yaml.safe_dump(change(model_data, "variants.tiny.metric.drop.fp16", ...)))
    assert set(load_spec(path).tolerances) == {"fp32"}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a: [1, 2", "not valid YAML: "),
        ("a: 1\n b: 2\n", "not valid YAML: "),
        ("name: \x07", "not valid YAML: "),
        ("name: 2026-13-45", "not valid YAML: "),  # looks like a date, and is none
        ("", "expected a mapping of keys, found NoneType"),
        ("- a\n- b\n", "expected a mapping of keys, found list"),
        ("just words", "expected a mapping of keys, found str"),
    ],
)
def test_file_of_another_kind_is_refused(path: Path, text: str, message: str) -> None:
    found = message_of(path, text)
    assert message in found
    assert "\n" not in found


def test_error_of_invalid_yaml_has_its_line(path: Path) -> None:
    assert "line 2, column" in message_of(path, "a: 1\nb: [1, 2\n")


def test_file_that_is_not_there_cannot_be_read(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"none\.yaml.*No such file"):
        load_spec(tmp_path / "none.yaml")


def test_file_that_is_no_text_cannot_be_read(path: Path) -> None:
    path.write_bytes(b"name: \xff\xfe")
    with pytest.raises(UserError, match=r"model\.yaml.*utf-8"):
        load_spec(path)


def test_folder_cannot_be_read(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"directory"):
        load_yaml(tmp_path, GpuProfile)


def test_error_of_a_wrong_profile_names_file_and_key(tmp_path: Path) -> None:
    path = tmp_path / "card.yaml"
    path.write_text("name: card\ndevice_kind: tpu\n")
    with pytest.raises(UserError) as caught:
        load_yaml(path, GpuProfile)
    message = str(caught.value)
    assert message.startswith(f"{path}: description: this key is required; ")
    assert "device_kind: Input should be 'cpu' or 'gpu' (found 'tpu')" in message


def test_interface_has_numbers_for_parameters(spec: ModelSpec) -> None:
    interface = spec.interface({"length": 64, "unused": "x"})
    assert interface.inputs[0].shape == (-1, 64, 3, -1)
    assert interface.outputs[0].shape == (-1, 64)
    assert (interface.inputs[0].name, interface.inputs[0].dtype) == ("x", "int32")


def test_spec_cannot_be_changed(spec: ModelSpec) -> None:
    with pytest.raises(ValueError, match="frozen"):
        spec.opset = 1


def test_tighter_tolerance_of_a_conversion_holds(model_data: dict[str, Any]) -> None:
    outputs = {"y": {"absolute": 0.05, "relative": 0.2, "cosine": 0.9}}
    change(model_data, "tolerances.fp16", {"absolute": 0.1, "cosine": 0.99, "outputs": outputs})
    loose = ModelSpec.model_validate(model_data)
    assert loose.conversion_tolerances("tiny", "fp16") == loose.tolerances["fp16"]
    change(model_data, "variants.tiny.convert", {"tolerance": {"absolute": 0.07, "relative": 0.1}})
    found = ModelSpec.model_validate(model_data).conversion_tolerances("tiny", "fp16")
    assert (found.absolute, found.relative, found.cosine) == (0.07, 0, 0.99)
    assert (found.of("y").absolute, found.of("y").relative) == (0.05, 0.1)
