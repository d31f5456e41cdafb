"""Rules for backends and accelerators, each with its reason."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from servegrid.domain.profile import GpuProfile
from servegrid.domain.releases import load_releases
from servegrid.domain.server import ServerCapabilities
from servegrid.domain.spec import FormatSpec, ModelSpec
from servegrid.domain.values import Accelerator, Format, Interface, Precision, Product
from servegrid.formats import FORMATS
from servegrid.formats.trt import format as trt
from servegrid.plan.matrix import Plan, expand
from servegrid.plan.rules import choose_backend, has_cuda_graphs, why_no_accelerator
from servegrid.plan.selection import Selection

WHOLE = ("onnxruntime", "pytorch", "tensorflow", "tensorrt", "python")


@pytest.fixture
def io(interface: Any) -> Interface:
    found: Interface = interface([("x__0", "float32", (-1, 4))], [("y__0", "float32", (-1, 4))])
    return found


def accelerated(data: dict[str, Any], *accelerators: str) -> ModelSpec:
    data["formats"]["onnx"]["accelerators"] = accelerators
    return ModelSpec.model_validate(data)


def plan(
    spec: ModelSpec,
    profile: GpuProfile,
    *,
    backends: tuple[str, ...] = ("python",),
    accelerators: tuple[Accelerator, ...] = (),
) -> Plan:
    selection = Selection(accelerators=accelerators, formats=("onnx",), precisions=("fp32",))
    server = ServerCapabilities(release="24.10", backends=backends)
    return expand(spec, "tiny", profile, server, selection, load_releases())


@pytest.mark.parametrize(
    ("format_", "backend", "last_axis", "captured"),
    [
        ("onnx", "hosted", 4, True),
        ("onnx", "hosted", -1, False),
        ("ts-trace", "hosted", -1, True),
        ("tf-savedmodel", "hosted", 4, False),
        ("trt", "native", -1, True),
    ],
)
def test_cuda_graphs_are_captured_by_format_and_shape(
    interface: Any, profile: GpuProfile, format_: Format, backend: Any, last_axis: int, captured: bool
) -> None:
    io = interface([("x", "float32", (-1, 4))], [("y", "float32", (-1, last_axis))])
    on = {kind: profile.model_copy(update={"device_kind": kind}) for kind in ("gpu", "cpu")}
    assert has_cuda_graphs(format_, backend, on["gpu"], io) is captured
    assert not has_cuda_graphs(format_, backend, on["cpu"], io)


def choose(
    format_: Format,
    io: Interface,
    release: str = "24.10",
    *,
    backends: Any = WHOLE,
    batch: int = 8,
    opset: int = 17,
    elsewhere: bool = False,
) -> tuple[str | None, str]:
    server = ServerCapabilities(release=release, backends=backends)
    wanted = product(format_, release, opset)
    return choose_backend(wanted, io, batch, server, load_releases(), elsewhere=elsewhere)


def product(format_: Format, release: str, opset: int | None = None) -> Product:
    return Product(
        model="toy",
        variant="tiny",
        export_format=FORMATS[format_].export,
        format=format_,
        precision="fp32",
        opset=opset,
        triton_release=release,
    )


def test_server_with_the_formats_backend_is_native_else_hosted_else_none(io: Interface) -> None:
    assert choose("onnx", io) == ("native", "")
    assert choose("onnx", io, backends=("python",)) == ("hosted", "the server has no onnxruntime backend")
    none, reason = choose("onnx", io, backends=("pytorch",))
    assert none is None
    assert reason == "the server has no onnxruntime backend, and no python backend, which would host it"


def test_tensorflow_is_native_up_to_its_last_image(io: Interface) -> None:
    assert choose("tf-savedmodel", io, "25.02")[0] == "native"
    reason = "Triton 25.03 has no tensorflow backend; 25.02 is the last"
    assert choose("tf-savedmodel", io, "25.03") == ("hosted", reason)


def test_facts_about_releases_are_passed_in(io: Interface) -> None:
    known = load_releases().model_copy(update={"last_tensorflow": "25.05", "first_torch_aoti": "25.01"})
    server = ServerCapabilities(release="25.03", backends=WHOLE)
    assert choose_backend(product("tf-savedmodel", "25.03"), io, 8, server, known)[0] == "native"
    assert choose_backend(product("aoti", "25.03"), io, 1, server, known)[0] == "native"


def test_aoti_is_native_from_its_first_release_on_and_without_batches(io: Interface) -> None:
    assert choose("aoti", io, "26.03", batch=0) == ("native", "")
    reason = "Triton 26.02 has no native aoti; 26.03 is the first with it"
    assert choose("aoti", io, "26.02", batch=0) == ("hosted", reason)
    assert choose("aoti", io, "26.03") == ("hosted", "the pytorch backend runs aoti without batching only")


@pytest.mark.parametrize(
    ("release", "opset", "reason"),
    [
        ("21.02", 13, None),
        ("21.02", 14, "has ONNX Runtime 1.6.0, which takes opsets up to 13; model.yaml says opset 14"),
        ("25.02", 21, None),
        ("25.02", 22, "has ONNX Runtime 1.20.1, which takes opsets up to 21; model.yaml says opset 22"),
        ("21.10", 13, "it is not known which ONNX opset Triton 21.10 takes; triton_releases.yaml may say it"),
        ("24.12", 13, "it is not known which ONNX opset Triton 24.12 takes; triton_releases.yaml may say it"),
    ],
)
def test_onnx_is_native_if_the_release_takes_its_opset(
    release: str, opset: int, reason: str | None, io: Interface
) -> None:
    backend, why = choose("onnx", io, release, opset=opset)
    assert (backend, bool(why)) == (("native", False) if reason is None else ("hosted", True))
    assert why.endswith(reason or "")
    alone = choose("onnx", io, release, opset=opset, backends=("onnxruntime",))
    assert alone[0] == (None if reason else "native")


@pytest.mark.parametrize(
    ("installed", "release", "reason"),
    [
        ("8.0.3.4", "21.10", None),
        ("7.2.2.3", "20.12", None),
        (
            "8.0.1.6",
            "21.10",
            "Triton 21.10 has TensorRT 8.0.3.4, and runs no engine that TensorRT 8.0.1.6 builds: ",
        ),
        (
            "8.0.3.4",
            "26.10",
            "it is not known which TensorRT Triton 26.10 has; triton_releases.yaml may say it",
        ),
        (
            "8.0.3.4",
            "24.12",
            "it is not known which TensorRT Triton 24.12 has; triton_releases.yaml may say it",
        ),
        (None, "21.10", None),  # another check reports that it is not installed
    ],
)
def test_engine_is_native_if_the_release_has_the_same_tensorrt(
    installed: str | None, release: str, reason: str | None, io: Interface, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(trt, "provider", lambda name: installed and "tensorrt")
    monkeypatch.setattr(trt, "versions", lambda names: {"tensorrt": installed})
    backend, why = choose("trt", io, release)
    assert backend == ("native" if reason is None else "hosted")
    assert why.startswith(reason or "")
    assert choose("trt", io, release, backends=("tensorrt",))[0] == (None if reason else "native")
    known = reason is None or not reason.startswith("it is not known")
    assert choose("trt", io, release, elsewhere=True)[0] == ("native" if known else "hosted")


def test_tf_trt_needs_an_environment_and_a_native_backend(
    model_data: dict[str, Any], profile: GpuProfile
) -> None:
    model_data["framework"] = "tensorflow"
    model_data["inputs"][0]["shape"] = ["batch", "length"]
    model_data["formats"] = {
        "tf-trt": {"export": "tf-savedmodel", "precisions": ["fp32"], "accelerators": ["trt"]}
    }
    spec = ModelSpec.model_validate(model_data)

    def found(card: GpuProfile, release: str, backends: Any) -> set[str]:
        server = ServerCapabilities(release=release, backends=backends)
        plan = expand(spec, "tiny", card, server, Selection(), load_releases())
        return {e.reason for e in plan.excluded} | {c.static.backend for c in plan.cells}

    assert found(profile, "25.02", WHOLE) == {
        "tf-trt is made by TensorFlow up to 2.17 built with TensorRT: name an environment that has it, or an "
        "image, in gpu_profiles/card.yaml, `environments: {tf-trt: /path/to/environment}` or "
        "`{tf-trt: {image: NAME}}`"
    }
    named = profile.model_copy(update={"environments": {"tf-trt": Path("/opt/tf")}})
    assert found(named, "25.02", WHOLE) == {"native"}
    assert found(named, "25.02", ("python",)) == {
        "the server has no tensorflow backend, and tf-trt is not hosted"
    }
    assert found(named, "25.03", WHOLE) == {
        "Triton 25.03 has no tensorflow backend; 25.02 is the last, and tf-trt is not hosted"
    }


def test_torchscript_without_positions_in_its_names_is_hosted(interface: Any) -> None:
    io = interface([("ids", "int64", (-1, 4))], [("y__0", "float32", (-1, 4))])
    backend, reason = choose("ts-trace", io)
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
def test_rules_of_accelerators(
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


def test_accelerators_of_hosted_cells_are_excluded(model_data: dict[str, Any], profile: GpuProfile) -> None:
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


def test_accelerator_cuda_is_read_as_none() -> None:
    spec = FormatSpec.model_validate(
        {"export": "onnx", "precisions": ["fp32"], "accelerators": ["cuda", "none"]}
    )
    assert spec.accelerators == ("none",)
    with pytest.raises(ValueError, match="accelerators"):
        FormatSpec.model_validate({"export": "onnx", "precisions": ["fp32"], "accelerators": ["cud"]})
