"""The source of a conversion and the fields of its key."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from servegrid.domain.plugins import Plugin
from servegrid.domain.root import ROOT
from servegrid.domain.spec import ModelSpec
from servegrid.domain.values import ArtifactRef, Product
from servegrid.plan.models import load_model
from servegrid.store.other_environment import CHILD
from tasks import convert, profile_data

REF = ArtifactRef(digest="a", path="objects/a", size=1)
OTHER = ArtifactRef(digest="b", path="objects/b", size=1)


@pytest.fixture
def plugin() -> Plugin:
    return load_model(ROOT / "models", "bert_large_qa")


def product(precision: str, **more: Any) -> Product:
    fields = {"model": "bert_large_qa", "variant": "tiny", "export_format": "onnx", "format": "onnx"}
    return Product.model_validate(fields | {"precision": precision, "triton_release": "24.10"} | more)


def changed(plugin: Plugin, **tiny: Any) -> Plugin:
    """The plug-in with other settings of its variant."""
    data = plugin.spec.model_dump(mode="json")
    for name, value in tiny.items():
        data["variants"]["tiny"][name] = value
    return plugin.model_copy(update={"spec": ModelSpec.model_validate(data)})


def key(plugin: Plugin, precision: str, **more: Any) -> str:
    calibration = REF if precision == "int8" else None
    return convert.request(plugin, product(precision, **more), REF, calibration).key


def test_half_is_made_of_the_fused_graph_and_the_others_of_the_export() -> None:
    assert convert.source(product("fp16")) == product("fp32")
    assert convert.source(product("fp32")) is None
    assert convert.source(product("int8")) is None


def test_calibration_rebuilds_int8_and_nothing_else(plugin: Plugin) -> None:
    int8 = product("int8")
    before = convert.request(plugin, int8, REF, REF).key
    assert convert.request(plugin, int8, REF, OTHER).key != before, "other calibration data"
    onnx = plugin.spec.variants["tiny"].convert.model_dump(mode="json")
    onnx["onnx"]["int8"]["samples"] = 7
    fewer = changed(plugin, convert=onnx)
    assert key(fewer, "int8") != before
    assert [key(fewer, p) for p in ("fp32", "fp16")] == [key(plugin, p) for p in ("fp32", "fp16")]
    wanted = profile_data.calibration(plugin, int8, None), profile_data.calibration(fewer, int8, None)
    assert [request.fields["samples"] for request in wanted] == [64, 7]


def test_how_many_samples_correctness_takes_is_nothing_to_int8(plugin: Plugin) -> None:
    other = changed(plugin, samples=99)
    wanted = [profile_data.calibration(p, product("int8"), None).key for p in (plugin, other)]
    assert wanted[0] == wanted[1]
    assert key(other, "int8") == key(plugin, "int8")


def test_only_the_fp32_graph_depends_on_fusion_and_not_for_tensorrt(plugin: Plugin) -> None:
    plain = changed(plugin, convert={})
    assert key(plain, "fp32") != key(plugin, "fp32")
    assert key(plain, "fp16") == key(plugin, "fp16")  # by its source, the fp32 graph
    assert key(plugin, "fp32", accelerator="trt") == key(plain, "fp32")


def test_versions_are_those_of_the_environment_that_makes_it(plugin: Plugin, tmp_path: Path) -> None:
    """Any format may be made elsewhere: the key is then of what is installed there."""
    python = tmp_path / "bin" / "python"
    python.parent.mkdir()
    installed = dict.fromkeys((*CHILD, "onnx", "onnxruntime-gpu"), "1.2.3")
    python.write_text(f"#!/bin/sh\necho '{json.dumps({'python': [3, 12], 'installed': installed})}'\n")
    python.chmod(0o755)
    here = convert.request(plugin, product("fp32"), REF)
    there = convert.request(plugin, product("fp32"), REF, environments={"convert_onnx": tmp_path})
    assert there.libraries == {"onnx": "1.2.3", "onnxruntime": "1.2.3"}
    assert there == here.model_copy(update={"libraries": there.libraries})
    assert convert.libraries(product("fp32"), ()) == {"onnx", "onnxruntime"}
    assert convert.libraries(product("fp32"), ("onnx",)) == set()
