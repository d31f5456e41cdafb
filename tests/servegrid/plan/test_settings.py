"""`--set`: fields of model.yaml from the command line."""

from __future__ import annotations

from typing import Any

import pytest

from servegrid.domain.errors import UserError
from servegrid.domain.spec import ModelSpec
from servegrid.plan.settings import _fields_of, with_settings
from servegrid.plan.spec_rules import RULES


def test_every_kind_of_field_is_set(spec: ModelSpec) -> None:
    texts = (
        "max_batch_size=64",
        "preferred_batch_sizes=16,64",
        "serving.max_queue_delay_us=100",
        "opset=15",
        "tolerances.fp16.absolute=0.5",
        "batch_sizes=1",
        "concurrency=[1, 8]",
        "workspace_bytes=1000",
        "variants.tiny.online.window_s=2",
        "convert.onnx.int8={samples: 4, keep_float: [Softmax]}",
        "protocol=http",
        "metric=null",
    )
    found, _ = with_settings(spec, "tiny", texts)
    variant = found.variants["tiny"]
    serving = variant.serving
    assert (serving.max_batch_size, serving.preferred_batch_sizes) == (64, (16, 64))
    assert (serving.max_queue_delay_us, serving.protocol) == (100, "http")
    assert (found.opset, found.tolerances["fp16"].absolute) == (15, 0.5)
    assert (variant.offline.batch_sizes, variant.online.concurrency) == ((1,), (1, 8))
    assert (variant.online.window_s, variant.metric) == (2.0, None)
    assert variant.convert.workspace_bytes == 1000
    assert (variant.convert.onnx.int8.samples, variant.convert.onnx.int8.keep_float) == (4, ("Softmax",))


def test_other_fields_and_variants_stay(spec: ModelSpec) -> None:
    data = spec.model_dump()
    data["variants"]["full"] = data["variants"]["tiny"]
    two = ModelSpec.model_validate(data, context=RULES)
    found, settings = with_settings(two, "tiny", ("max_batch_size=64",))
    data["variants"]["tiny"] = two.variants["tiny"].model_dump()
    data["variants"]["tiny"]["serving"]["max_batch_size"] = 64
    assert found == ModelSpec.model_validate(data, context=RULES)
    assert settings == ("serving.max_batch_size=64",)


def test_a_setting_that_changes_nothing_is_none(spec: ModelSpec) -> None:
    same = spec.variants["tiny"].serving.max_queue_delay_us
    assert with_settings(spec, "tiny", (f"max_queue_delay_us={same}",)) == (spec, ())


def test_the_number_of_instances_is_no_setting_of_the_name(spec: ModelSpec) -> None:
    found, settings = with_settings(spec, "tiny", ("instances=3,5",))
    assert found.variants["tiny"].serving.instances == (3, 5)
    assert settings == ()


def test_settings_do_not_depend_on_their_order_and_spelling(spec: ModelSpec) -> None:
    one = with_settings(spec, "tiny", ("max_batch_size=64", "opset=15"))
    other = with_settings(spec, "tiny", ("opset=15", "variants.tiny.serving.max_batch_size=64"))
    assert one == other and one[1] == ("opset=15", "serving.max_batch_size=64")


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("max_bach_size=3", "--set max_bach_size=3: .*'serving.max_batch_size'"),
        ("tolerances.fp61.absolute=3", "'tolerances.fp16.absolute'"),
        ("batch_size=3", "unknown field 'batch_size'.*'offline.batch_sizes'"),
        ("window_s=2", r"variants.tiny.offline.window_s, variants.tiny.online.window_s"),
        ("max_batch_size", "expected KEY=VALUE"),
        ("=3", "expected KEY=VALUE"),
        ("max_batch_size=", r"variants.tiny.serving.max_batch_size: .*\(found None\)"),
        ("max_batch_size=many", r"variants.tiny.serving.max_batch_size: .*\(found 'many'\)"),
        ("max_batch_size=true", "variants.tiny.serving.max_batch_size: .*not true or false"),
        ("max_batch_size=2147483648", "variants.tiny.serving.max_batch_size: .*2147483647"),
        ("max_batch_size=1", "serving.preferred_batch_sizes: .* over serving.max_batch_size, 1"),
        ("preferred_batch_sizes=4,x", r"serving.preferred_batch_sizes.1: .*\(found 'x'\)"),
        ("instances=1,1", "serving.instances: 1 stands there twice"),
        ("instances=[]", "serving.instances: .*at least 1 item"),
        ("protocol=gprc", "serving.protocol: .*did you mean 'grpc'"),
        ("serving=3", r"variants.tiny.serving: .*\(found 3\)"),
        ("serving={max_bach_size: 3}", "serving.max_bach_size: no such key"),
        ("opset=99", "opset: .*less than or equal to 28"),
        ("tolerances.fp16.cosine=2", "tolerances.fp16.cosine: .*less than or equal to 1"),
        ("tolerances.fp16.absolute=.nan", "tolerances.fp16.absolute: "),
        ("optimize.num_heads=2", "convert.onnx.optimize.model_type: this key is required"),
        ("parameters.depth=3", "unknown field 'parameters.depth'"),
        ("max_batch_size=!!python/object/apply:os.system ['touch ran']", "max_batch_size: "),
    ],
)
def test_a_wrong_setting_has_the_error_of_model_yaml(text: str, named: str, spec: ModelSpec) -> None:
    with pytest.raises(UserError, match=named) as caught:
        with_settings(spec, "tiny", (text,))
    assert "--set" in str(caught.value) and len(str(caught.value).splitlines()) == 1


def test_a_field_that_is_set_twice_is_refused(spec: ModelSpec) -> None:
    with pytest.raises(UserError, match="set twice"):
        with_settings(spec, "tiny", ("max_batch_size=64", "serving.max_batch_size=32"))


def test_every_field_of_a_variant_can_be_set(spec: ModelSpec) -> None:
    known: dict[Any, Any] = dict(_fields_of("tiny", spec.model_dump(mode="json")))
    names = {keys[2] for keys in known if keys[0] == "variants"}
    assert names == set(type(spec.variants["tiny"]).model_fields) - {"parameters"}
    assert ("opset",) in known and ("tolerances", "bf16", "agreement") in known
