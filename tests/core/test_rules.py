"""Which backend serves a format, and where an accelerator acts: each rule with its reason."""

from __future__ import annotations

from typing import Any

import pytest

from tasks.core.matrix import Plan, Selection, expand
from tasks.core.profile import GpuProfile
from tasks.core.rules import choose_backend, why_no_accelerator
from tasks.core.spec import FormatSpec, ModelSpec
from tasks.core.values import Accelerator, Format, Interface, Precision

WHOLE = ("onnxruntime", "pytorch", "tensorflow", "tensorrt", "python")


@pytest.fixture
def io(interface: Any) -> Interface:
    found: Interface = interface([("x__0", "float32", (-1, 4))], [("y__0", "float32", (-1, 4))])
    return found


def accelerated(data: dict[str, Any], *accelerators: str) -> ModelSpec:
    data["formats"]["onnx"]["accelerators"] = accelerators
    return ModelSpec.model_validate(data)


def plan(spec: ModelSpec, profile: GpuProfile, **more: Any) -> Plan:
    selection = Selection(accelerators=more.pop("accelerators", ()), formats=("onnx",), precisions=("fp32",))
    return expand(
        spec, "tiny", profile, generator="client", triton_release="24.10", selection=selection, **more
    )


def test_server_with_the_formats_backend_is_native_else_hosted_else_none(io: Interface) -> None:
    assert choose_backend("onnx", io, 8, WHOLE, "24.10") == ("native", "")
    assert choose_backend("onnx", io, 8, ("python",), "24.10") == (
        "hosted", "the server has no onnxruntime backend",
    )  # fmt: skip
    none, reason = choose_backend("onnx", io, 8, ("pytorch",), "24.10")
    assert none is None
    assert reason == "the server has no onnxruntime backend, and no python backend, which would host it"


def test_tensorflow_is_native_up_to_its_last_image(io: Interface) -> None:
    assert choose_backend("tf-savedmodel", io, 8, WHOLE, "25.02")[0] == "native"
    backend, reason = choose_backend("tf-savedmodel", io, 8, WHOLE, "25.03")
    assert backend == "hosted"
    assert reason == "Triton 25.03 has no tensorflow backend; 25.02 is the last"


def test_torchscript_without_positions_in_its_names_is_hosted(interface: Any) -> None:
    io = interface([("ids", "int64", (-1, 4))], [("y__0", "float32", (-1, 4))])
    backend, reason = choose_backend("ts-trace", io, 8, WHOLE, "24.10")
    assert backend == "hosted"
    assert "needs tensor 0 named NAME__0, not 'ids'" in reason


@pytest.mark.parametrize(
    ("accelerator", "format_", "precision", "backend", "kind", "reason"),
    [
        ("none", "onnx", "fp32", "hosted", "cpu", None),
        ("trt", "onnx", "fp16", "native", "gpu", None),
        ("trt", "tf-savedmodel", "fp32", "native", "gpu", None),
        ("amp", "tf-savedmodel", "fp32", "native", "gpu", None),
        ("trt", "tf-trt", "fp16", "hosted", "gpu", None),
        ("trt", "ts-trace", "fp16", "native", "gpu", "acts on onnx and tf-savedmodel, not on ts-trace"),
        ("amp", "onnx", "fp32", "native", "gpu", "acts on tf-savedmodel, not on onnx"),
        ("trt", "onnx", "fp32", "native", "cpu", "needs a GPU; gpu_profiles/card.yaml has none"),
        ("trt", "onnx", "bf16", "native", "gpu", "takes fp32 and fp16, not bf16"),
        ("amp", "tf-savedmodel", "fp16", "native", "gpu", "takes fp32, not fp16"),
        ("trt", "onnx", "fp16", "hosted", "gpu", "the onnxruntime backend's own: a hosted model has none"),
    ],
)
def test_accelerator_acts_where_its_rules_let_it(
    accelerator: Accelerator,
    format_: Format,
    precision: Precision,
    backend: Any,
    kind: str,
    reason: str | None,
    profile: GpuProfile,
) -> None:
    card = profile.model_copy(update={"device_kind": kind})
    found = why_no_accelerator(accelerator, format_, precision, backend, card)
    assert (found or "").endswith(reason or "")
    assert (found is None) is (reason is None)


def test_accelerators_are_cells_of_their_own(model_data: dict[str, Any], profile: GpuProfile) -> None:
    spec = accelerated(model_data, "none", "trt")
    names = [c.name for c in plan(spec, profile, backends=WHOLE).cells]
    assert names == [f"toy-tiny-onnx-fp32{end}" for end in ("", "-x2", "-trt", "-trt-x2")]
    cell = plan(spec, profile, backends=WHOLE, accelerators=("trt",)).cells[0]
    assert (cell.product.accelerator, cell.product.accelerator_precision) == ("trt", "fp32")
    assert (cell.static.backend, cell.dynamic.backend) == ("native", "native")


def test_hosted_cells_lose_their_accelerators_with_the_reason(
    model_data: dict[str, Any], profile: GpuProfile
) -> None:
    found = plan(accelerated(model_data, "none", "trt"), profile)
    assert {c.product.accelerator for c in found.cells} == {"none"}
    assert {e.cell.product.accelerator for e in found.excluded} == {"trt"}
    assert {e.reason for e in found.excluded} == {
        "accelerator trt is the onnxruntime backend's own: a hosted model has none"
    }


def test_server_that_cannot_run_a_format_excludes_it(spec: ModelSpec, profile: GpuProfile) -> None:
    found = plan(spec, profile, backends=("tensorrt",))
    assert not found.cells
    assert all("no onnxruntime backend, and no python backend" in e.reason for e in found.excluded)


def test_cuda_is_another_name_of_none() -> None:
    spec = FormatSpec.model_validate(
        {"export": "onnx", "precisions": ["fp32"], "accelerators": ["cuda", "none"]}
    )
    assert spec.accelerators == ("none",)
    with pytest.raises(ValueError, match="accelerators"):
        FormatSpec.model_validate({"export": "onnx", "precisions": ["fp32"], "accelerators": ["cud"]})
