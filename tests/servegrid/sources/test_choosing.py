"""The models that options name: conflicts, missing files, parameters."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from servegrid.domain.errors import UserError
from servegrid.domain.plugins import Plugin
from servegrid.plan.options import SweepOptions
from servegrid.sources.choosing import choose_plugins
from servegrid.store.site import Site, default_site
from tasks import export
from tasks.planning import plan

PUBLISHED = Path(__file__).parents[2] / "published"


@pytest.fixture
def site(tmp_path: Path) -> Site:
    return default_site().model_copy(update={"home": tmp_path / "home"})


@pytest.mark.parametrize(
    ("given", "named"),
    [
        ({"onnx": "a", "torchscript": "b"}, "--onnx.*--torchscript"),
        ({"onnx": "a", "models": ("bert_large_qa",)}, "--model.*--onnx"),
        ({"savedmodel": "a", "model_dir": "b"}, "--savedmodel.*--model-dir"),
        ({"shapes": ("x=1,2",)}, "--shape.*--onnx"),
        ({"model_dir": "b", "samples": "s.npz"}, "--samples.*--onnx"),
        ({"hf": "a", "onnx": "b"}, "--onnx.*--hf"),
        ({"onnx": "a", "task": "fill-mask"}, "--task.*--hf"),
        ({"hf": "a", "shapes": ("x=1,2",)}, "--shape.*--hf"),
    ],
)
def test_options_that_exclude_one_another(given: dict[str, object], named: str) -> None:
    with pytest.raises(ValidationError, match=named):
        SweepOptions.model_validate(given)


@pytest.mark.parametrize(
    ("given", "named"),
    [
        ({"onnx": "{}/no.onnx"}, "no such file or folder"),
        ({"onnx": "{}/folder"}, "a folder; give the model's file"),
        ({"torchscript": "{}/folder"}, "a folder; give the model's file"),
        ({"savedmodel": "{}/file"}, "not a SavedModel"),
        ({"savedmodel": "{}/folder"}, "not a SavedModel"),
        ({"onnx": "{}/file", "samples": "{}/no.npz"}, "--samples .*no such file"),
        ({"onnx": "{}/file", "shapes": ("x",)}, "--shape x: expected NAME=1,3,224,224"),
        ({"onnx": "{}/file", "shapes": ("x=1,0",)}, "--shape x=1,0: expected NAME=1,3,224,224"),
        ({"model_dir": "{}/folder"}, "--model-dir .*: has no model.yaml"),
        ({"params": ("x",)}, "--param x: expected NAME=VALUE"),
        ({"params": ("x=[1]",)}, "--param .*: expected NAME=VALUE"),
        ({"params": ("max_seq_length=long",)}, "--param: .*max_seq_length: expected a whole number"),
        ({"plugin_paths": ("{}/no",)}, "--plugin-path .*: no such folder"),
        ({"torch_export": "{}/file"}, "--torch-export .*: not a file of torch.export.save"),
        ({"onnx": "{}/huge"}, "over 2 GB, which no ONNX file can be"),
    ],
    ids=[
        *(
            "no file",
            "a folder for an ONNX file",
            "a folder for a TorchScript file",
            "a file for a SavedModel",
        ),
        *("a folder without a SavedModel", "no samples", "a shape without numbers", "a shape with 0"),
        *("a folder without model.yaml", "a parameter without value", "a list as parameter"),
        *(
            "a text for an axis",
            "no folder to import from",
            "another file for a program",
            "an ONNX file over 2 GB",
        ),
    ],
)
@pytest.mark.fault("Inputs: paths and shapes", "one line that names the option; no process is started")
def test_missing_or_wrong_input_is_refused_before_a_process_starts(
    given: dict[str, object], named: str, site: Site, tmp_path: Path, happened: Any
) -> None:
    (tmp_path / "folder").mkdir()
    (tmp_path / "file").write_bytes(b"x")
    (tmp_path / "huge").touch()
    os.truncate(tmp_path / "huge", 2**31)  # no byte of it is on the disk

    def at(value: object) -> object:
        return value.format(tmp_path) if isinstance(value, str) else tuple(map(at, value))  # type: ignore[call-overload]

    options = SweepOptions.model_validate({key: at(value) for key, value in given.items()})
    with pytest.raises(UserError, match=named) as caught:
        choose_plugins(options, site)
    assert not site.home.exists()
    happened(caught.value)


def published(site: Site, *params: str) -> Plugin:
    options = SweepOptions(
        model_dir=str(PUBLISHED / "triton"), plugin_paths=(str(PUBLISHED / "library"),), params=params
    )
    (found,) = plan(options, site)
    assert {cell.product.variant for cell in found.plan.cells} == {"full"}
    return found.plugin


def test_a_model_that_is_named_twice_is_one(site: Site) -> None:
    options = SweepOptions(models=("bert_large_qa", "bert_large_qa"))
    assert len(choose_plugins(options, site)) == 1


def test_parameters_are_typed_and_reach_the_product(site: Site) -> None:
    plugin = published(site, "hidden=8", "rate=0.5", "cpu=false", "name=a=b")
    parameters = plugin.spec.variants["full"].parameters
    assert (parameters["hidden"], parameters["rate"], parameters["cpu"]) == (8, 0.5, False)
    assert (parameters["name"], parameters["count"]) == ("a=b", 80)
    assert not plugin.prepares


def test_file_of_a_parameter_is_the_same_from_any_folder(
    site: Site, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "net.pt").write_text("1")
    monkeypatch.chdir(tmp_path)
    relative = published(site, "checkpoint=data/net.pt")
    assert relative.spec.variants["full"].parameters["checkpoint"] == str(tmp_path / "data" / "net.pt")
    assert set(relative.files) == {"checkpoint"}
    monkeypatch.chdir("/")
    assert published(site, f"checkpoint={tmp_path}/data/net.pt") == relative


def test_code_and_files_outside_the_folder_are_in_the_key(site: Site, tmp_path: Path) -> None:
    weights = tmp_path / "weights"
    weights.write_text("1")
    keys = []
    for text in ("1", "2"):
        weights.write_text(text)
        plugin = published(site, f"checkpoint={weights}")
        options = SweepOptions(model_dir=str(PUBLISHED / "triton"), formats=("onnx",))
        (cell,) = plan(options, site)[0].plan.cells
        request = export.request(plugin, cell.product, None)
        assert str(PUBLISHED / "library" / "clouds.py") in request.sources
        keys.append(request.key)
    assert keys[0] != keys[1]
