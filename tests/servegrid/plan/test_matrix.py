"""From spec and profile to cells: every combination is a cell, or excluded with a reason."""

from __future__ import annotations

import itertools
from typing import Any

import pytest

from servegrid.domain.errors import UserError
from servegrid.domain.profile import GpuProfile, ProfileRule
from servegrid.domain.releases import load_releases
from servegrid.domain.server import ServerCapabilities
from servegrid.domain.slo import parse
from servegrid.domain.spec import ModelSpec
from servegrid.domain.values import Bounds
from servegrid.formats.aoti.format import AOTI
from servegrid.plan.matrix import Plan, expand
from servegrid.plan.selection import Selection

SERVER = ServerCapabilities(release="24.10", backends=("python",))


def plan(
    spec: ModelSpec,
    profile: GpuProfile,
    variant: str = "tiny",
    **selection: Any,
) -> Plan:
    return expand(spec, variant, profile, SERVER, Selection(**selection), load_releases())


def kinds(found: Plan) -> list[tuple[str, str, int]]:
    return [(c.product.format, c.product.precision, c.dynamic.instances) for c in found.cells]


def test_matrix_is_formats_by_precisions_by_instances(spec: ModelSpec, profile: GpuProfile) -> None:
    pairs = [("ts-trace", "fp32"), ("ts-trace", "fp16"), ("onnx", "fp32")]
    assert kinds(plan(spec, profile)) == [(f, p, i) for f, p in pairs for i in (1, 2)]


@pytest.mark.parametrize("formats", [(), ("onnx",), ("ts-trace", "onnx")])
@pytest.mark.parametrize("precisions", [(), ("fp16",), ("fp32", "fp16")])
@pytest.mark.parametrize("can", [("fp32",), ("fp16",), ("fp32", "fp16")])
def test_every_combination_is_a_cell_or_excluded_with_a_reason(
    spec: ModelSpec,
    profile: GpuProfile,
    formats: tuple[str, ...],
    precisions: tuple[str, ...],
    can: tuple[str, ...],
) -> None:
    rule = ProfileRule(format="ts-trace", precision="fp32", reason="too old")
    card = profile.model_copy(update={"precisions": can, "unsupported": (rule,)})
    found = plan(spec, card, formats=formats, precisions=precisions)
    wanted = itertools.product(formats or ("ts-trace", "onnx"), precisions or ("fp32", "fp16"), ("", "-x2"))
    names = [c.name for c in found.cells] + [e.cell.name for e in found.excluded]
    assert sorted(names) == sorted(f"toy-tiny-{f}-{p}{i}" for f, p, i in wanted)
    assert all(entry.reason for entry in found.excluded)


def test_limits_cut_points_and_keep_the_smallest(spec: ModelSpec, profile: GpuProfile) -> None:
    def cell(**limits: int) -> Any:
        return plan(spec, profile, **limits).cells[0]

    full = cell()
    assert cell(max_batch_size=full.static.max_batch_size + 1) == full
    small = cell(max_batch_size=1, max_concurrency=1, request_count=7, window_s=0.5)
    assert (small.static.max_batch_size, small.dynamic.max_batch_size) == (1, 1)
    assert set(small.dynamic.preferred_batch_sizes) <= {1}
    assert (small.offline.batch_sizes, small.online.batch_sizes) == ((1,), (1,))
    assert small.online.concurrency == (1,)
    assert (small.offline.request_count, small.online.request_count) == (7, 7)
    assert (small.offline.window_s, small.online.window_s) == (0.5, 0.5)
    assert small.product == full.product


@pytest.mark.parametrize(
    ("bounds", "end"),
    [
        ({}, ""),
        ({"max_batch_size": 8, "max_concurrency": 16}, ""),
        ({"max_batch_size": 4}, "-b4"),
        ({"max_concurrency": 2}, "-c2"),
        ({"max_batch_size": 4, "max_concurrency": 2}, "-b4-c2"),
    ],
)
def test_name_has_the_bounds_that_apply(
    bounds: dict[str, int], end: str, spec: ModelSpec, profile: GpuProfile
) -> None:
    name = plan(spec, profile, **bounds).cells[1].name
    assert name == f"toy-tiny-ts-trace-fp32-x2{end}"
    assert Bounds.of_name(name) == Bounds.model_validate(bounds if end else {})


@pytest.mark.parametrize(
    ("most", "fixed_points", "points"),
    [
        (8, False, (1, 4, 8)),
        (8, True, (1, 4)),
        (4, False, (1, 4)),
        (100, False, (1, 4, 16)),
        (100, True, (1, 4, 16)),
    ],
)
def test_bound_ends_the_search_and_selects_from_fixed_points(
    spec: ModelSpec, profile: GpuProfile, most: int, fixed_points: bool, points: tuple[int, ...]
) -> None:
    online = plan(spec, profile, max_concurrency=most, fixed_points=fixed_points).cells[0].online
    assert online.concurrency == points
    assert (
        plan(spec, profile, max_concurrency=max(points), fixed_points=fixed_points).cells[0].online == online
    )


def test_load_options_are_in_the_load_plans(spec: ModelSpec, profile: GpuProfile) -> None:
    asked = {"request_rates": (5.0,), "distribution": "constant", "slo": "p95=0.1s", "protocol": "http"}
    cell = plan(spec, profile, shared_memory="none", **asked).cells[0]
    assert (cell.static.protocol, cell.dynamic.protocol) == ("http", "http")
    assert (cell.offline.protocol, cell.online.protocol) == ("http", "http")
    assert (cell.offline.shared_memory, cell.online.shared_memory) == ("none", "none")
    assert (cell.offline.request_rates, cell.offline.slo, cell.offline.fixed_points) == ((), None, True)
    assert (cell.online.request_rates, cell.online.distribution) == ((5.0,), "constant")
    assert (cell.online.slo, cell.online.fixed_points) == (parse("p95=100ms"), False)
    assert cell.online.extent == "online up to concurrency 16, 1 rates, rates for p95=100ms"


def test_published_points_are_measured_on_the_input_data_of_their_table(
    spec: ModelSpec, profile: GpuProfile
) -> None:
    """Of another scenario, and of other points, on the model's own samples; an option outweighs both."""
    tiny = spec.variants["tiny"]
    online = tiny.online.model_copy(update={"published_input_data": "random"})
    variants = spec.variants | {"tiny": tiny.model_copy(update={"online": online})}
    published = spec.model_copy(update={"variants": variants})

    def data(**options: Any) -> tuple[str, str]:
        cell = plan(published, profile, **options).cells[0]
        return cell.offline.input_data, cell.online.input_data

    assert data() == ("samples", "samples")
    assert data(fixed_points=True) == ("samples", "random")
    assert data(fixed_points=True, input_data="zero") == ("zero", "zero")


def test_cuda_shared_memory_needs_a_gpu(spec: ModelSpec, profile: GpuProfile) -> None:
    on_cpu = profile.model_copy(update={"device_kind": "cpu"})
    found = plan(spec, on_cpu, shared_memory="cuda")
    assert not found.cells
    assert {e.reason for e in found.excluded if "shared memory" in e.reason} == {
        f"shared memory cuda needs a GPU; gpu_profiles/{profile.name}.yaml has none"
    }
    on_gpu = profile.model_copy(update={"device_kind": "gpu"})
    cells = plan(spec, on_gpu, shared_memory="cuda").cells
    assert cells
    assert {cell.online.shared_memory for cell in cells} == {"cuda"}


def test_random_weights_are_another_product(spec: ModelSpec, profile: GpuProfile) -> None:
    random = plan(spec, profile, random_weights=True)
    assert {cell.product.random_weights for cell in random.cells} == {True}
    assert random.cells[0].product != plan(spec, profile).cells[0].product


def test_names_are_unique_and_have_the_varied_parts(spec: ModelSpec, profile: GpuProfile) -> None:
    names = [cell.name for cell in plan(spec, profile).cells]
    assert len(set(names)) == len(names)
    assert names[:2] == ["toy-tiny-ts-trace-fp32", "toy-tiny-ts-trace-fp32-x2"]


def test_precision_that_the_spec_does_not_list_is_excluded(spec: ModelSpec, profile: GpuProfile) -> None:
    found = plan(spec, profile).excluded
    assert {e.cell.name for e in found} == {"toy-tiny-onnx-fp16", "toy-tiny-onnx-fp16-x2"}
    assert {e.reason for e in found} == {"models/toy/model.yaml lists no fp16 for onnx"}
    assert {e.cell.profile for e in found} == {"card"}


def test_known_reason_for_an_unbuilt_precision_is_given(
    model_data: dict[str, Any], profile: GpuProfile
) -> None:
    model_data["formats"]["aoti"] = {"export": "torch-export", "precisions": ["fp32"]}
    reasons = {e.cell.name: e.reason for e in plan(ModelSpec.model_validate(model_data), profile).excluded}
    reason = reasons["toy-tiny-aoti-fp16-from-torch-export"]
    assert reason == f"aoti is not built in fp16: {AOTI.unbuilt['fp16']}"
    assert reasons["toy-tiny-onnx-fp16"] == "models/toy/model.yaml lists no fp16 for onnx"


def test_selected_accelerator_that_the_spec_does_not_list_is_excluded(
    model_data: dict[str, Any], profile: GpuProfile
) -> None:
    model_data["formats"]["onnx"]["accelerators"] = ["none", "trt"]
    found = plan(ModelSpec.model_validate(model_data), profile, formats=("ts-trace",), accelerators=("trt",))
    assert not found.cells
    assert {e.cell.name for e in found.excluded} == {
        f"toy-tiny-ts-trace-{precision}-trt{end}" for precision in ("fp32", "fp16") for end in ("", "-x2")
    }
    assert {e.reason for e in found.excluded} == {
        "models/toy/model.yaml lists no accelerator trt for ts-trace"
    }
    assert not any("accelerator trt for" in e.reason for e in plan(ModelSpec(**model_data), profile).excluded)


def test_each_number_of_instances_is_a_cell(spec: ModelSpec, profile: GpuProfile) -> None:
    for counts in ((2,), (1, 3, 24)):
        found = plan(spec, profile, formats=("onnx",), instances=counts)
        assert kinds(found) == [("onnx", "fp32", count) for count in counts]
        ends = ["" if count == 1 else f"-x{count}" for count in counts]
        assert [cell.name for cell in found.cells] == [f"toy-tiny-onnx-fp32{end}" for end in ends]


def test_precision_that_the_card_lacks_is_excluded(spec: ModelSpec, profile: GpuProfile) -> None:
    found = plan(spec, profile.model_copy(update={"precisions": ("fp32",)}))
    reasons = {e.cell.name: e.reason for e in found.excluded}
    assert reasons["toy-tiny-ts-trace-fp16"] == "gpu_profiles/card.yaml: a card has no fp16"
    assert {c.product.precision for c in found.cells} == {"fp32"}


def test_rule_of_the_profile_excludes_only_its_format_and_precision(
    spec: ModelSpec, profile: GpuProfile
) -> None:
    rule = ProfileRule(format="ts-trace", precision="fp16", reason="its fp16 is wrong")
    found = plan(spec, profile.model_copy(update={"unsupported": (rule,)}))
    reasons = {e.cell.name: e.reason for e in found.excluded}
    assert reasons["toy-tiny-ts-trace-fp16"] == "gpu_profiles/card.yaml: its fp16 is wrong"
    assert kinds(found) == [(f, "fp32", i) for f in ("ts-trace", "onnx") for i in (1, 2)]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"formats": ("onnx", "trt")}, "unknown format 'trt': known: onnx, ts-trace"),
        (
            {"precisions": ("fp32", "bf16")},
            "unknown precision 'bf16': did you mean 'fp16'? known: fp16, fp32",
        ),
        ({"variant": "tinny"}, "unknown variant of toy 'tinny': did you mean 'tiny'? known: tiny"),
        ({"variant": "0"}, "unknown variant of toy '0': known: tiny"),
    ],
)
def test_error_of_an_unknown_name_has_the_nearest(
    spec: ModelSpec, profile: GpuProfile, arguments: dict[str, Any], message: str
) -> None:
    with pytest.raises(UserError) as caught:
        plan(spec, profile, **arguments)
    assert str(caught.value) == message


def test_format_that_only_another_model_has_is_unknown_here(
    model_data: dict[str, Any], profile: GpuProfile
) -> None:
    del model_data["formats"]["onnx"]
    with pytest.raises(UserError, match=r"format.*'onnx'.*ts-trace"):
        plan(ModelSpec.model_validate(model_data), profile, formats=("onnx",))


def test_servings_and_loads_come_from_the_spec(spec: ModelSpec, profile: GpuProfile) -> None:
    cell = plan(spec, profile).cells[1]
    assert (cell.static.batching, cell.dynamic.batching) == ("static", "dynamic")
    for serving in (cell.static, cell.dynamic):
        assert (serving.max_batch_size, serving.instances, serving.load_timeout_s) == (8, 2, 30)
        assert serving.device_kind == "gpu"
    assert (cell.dynamic.preferred_batch_sizes, cell.dynamic.max_queue_delay_us) == ((4, 8), 7)
    assert cell.static.preferred_batch_sizes == ()
    assert (cell.offline.scenario, cell.online.scenario) == ("offline", "online")
    assert cell.offline.points == ((1, 1), (8, 1))
    assert cell.online.points == ((2, 1), (2, 4), (2, 16))
    assert (cell.offline.generator, cell.online.generator, cell.profile) == ("client", "client", "card")


def test_product_has_every_input_of_its_build(spec: ModelSpec, profile: GpuProfile) -> None:
    products = {c.product.format: c.product for c in plan(spec, profile).cells}
    trace, onnx = products["ts-trace"], products["onnx"]
    assert (onnx.export_format, onnx.opset, onnx.torch_jit) == ("onnx", 17, "none")
    assert (trace.export_format, trace.opset, trace.torch_jit) == ("ts-trace", None, "trace")
    assert (onnx.model, onnx.variant, onnx.parameters) == ("toy", "tiny", {"length": 64})
    assert onnx.triton_release == "24.10"


def test_expanding_twice_gives_the_same(spec: ModelSpec, profile: GpuProfile) -> None:
    assert plan(spec, profile) == plan(spec, profile)
