"""Finding model folders and profiles, and which files a stage's key holds."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from servegrid.domain.errors import UserError
from servegrid.domain.plugins import load_profile, source_digests
from servegrid.plan.models import load_model


@pytest.fixture
def models(tmp_path: Path, model_data: dict[str, Any]) -> Path:
    for name in ("resnet50", "bert_large_qa", "_template"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "model.yaml").write_text(yaml.safe_dump(model_data | {"name": name}))
    (tmp_path / "no_model").mkdir()
    return tmp_path


def test_model_is_found_by_its_folder(models: Path) -> None:
    plugin = load_model(models, "resnet50")
    assert (plugin.spec.name, plugin.folder) == ("resnet50", models / "resnet50")


def test_unknown_model_is_refused_with_the_nearest_and_all_names(models: Path) -> None:
    with pytest.raises(UserError) as caught:
        load_model(models, "resnet")
    assert str(caught.value) == (
        f"unknown model (in {models}) 'resnet': did you mean 'resnet50'? known: bert_large_qa, resnet50"
    )


@pytest.mark.parametrize("name", ["_template", "no_model", "../elsewhere", ""])
def test_folder_that_is_no_model_is_unknown(models: Path, name: str) -> None:
    with pytest.raises(UserError, match=rf"model.*{name!r}"):
        load_model(models, name)


def test_folder_without_models_says_that_there_are_none(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"'resnet50'.*none$"):
        load_model(tmp_path / "nowhere", "resnet50")


def test_model_must_bear_its_folders_name(models: Path) -> None:
    (models / "copy").mkdir()
    (models / "copy" / "model.yaml").write_text((models / "resnet50" / "model.yaml").read_text())
    with pytest.raises(UserError, match=r"copy/model\.yaml.*name\b.*'copy'.*'resnet50'"):
        load_model(models, "copy")


def test_wrong_model_file_is_refused_with_its_path(models: Path) -> None:
    (models / "resnet50" / "model.yaml").write_text("name: resnet50\n")
    with pytest.raises(UserError, match=r"resnet50/model\.yaml.*description"):
        load_model(models, "resnet50")


def test_unknown_profile_is_refused_with_the_nearest(tmp_path: Path) -> None:
    for name in ("a30", "a100-80gb", "cpu"):
        (tmp_path / f"{name}.yaml").touch()
    with pytest.raises(UserError, match=r"profile.*'a100'.*'a100-80gb'"):
        load_profile(tmp_path, "a100")


# Sources -----------------------------------------------------------------------------------------------


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """model.py -> net.py -> layers.py -> net.py; prepare.py stands apart."""
    files = {
        "model.py": "import json, net\n\ndef get_model():\n    from late import thing\n",
        "net.py": "from layers import Layer\nimport torch.nn\n",
        "layers.py": "import net\n",
        "late.py": "thing = 1\n",
        "prepare.py": "import model_zoo\n",
        "data/words.txt": "a",
        "data/deep/more.bin": "b",
    }
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    return tmp_path


def test_sources_are_the_entry_and_its_imports_direct_or_not(folder: Path) -> None:
    assert list(source_digests(folder, "model.py")) == ["late.py", "layers.py", "model.py", "net.py"]
    assert list(source_digests(folder, "prepare.py")) == ["prepare.py"]


@pytest.mark.parametrize("name", ["model.py", "net.py", "layers.py", "late.py"])
def test_sources_change_with_every_file_that_is_imported(folder: Path, name: str) -> None:
    before = source_digests(folder, "model.py")
    with (folder / name).open("a") as file:
        file.write("# changed\n")
    after = source_digests(folder, "model.py")
    assert {key for key in after if after[key] != before[key]} == {name}


@pytest.mark.parametrize("name", ["prepare.py", "data/words.txt", "new.py"])
def test_sources_do_not_change_with_other_files(folder: Path, name: str) -> None:
    before = source_digests(folder, "model.py")
    (folder / name).write_text("changed")
    assert source_digests(folder, "model.py") == before


def test_sources_include_data_with_the_option(folder: Path) -> None:
    before = source_digests(folder, "prepare.py", with_data=True)
    assert list(before) == ["data/deep/more.bin", "data/words.txt", "prepare.py"]
    (folder / "data" / "deep" / "more.bin").write_text("c")
    assert source_digests(folder, "prepare.py", with_data=True) != before


def test_sources_without_a_data_folder_are_the_code(tmp_path: Path) -> None:
    (tmp_path / "prepare.py").touch()
    assert list(source_digests(tmp_path, "prepare.py", with_data=True)) == ["prepare.py"]


def test_file_that_does_not_parse_counts_by_its_content(tmp_path: Path) -> None:
    (tmp_path / "model.py").write_text("def broken(:\n")
    before = source_digests(tmp_path, "model.py")
    (tmp_path / "model.py").write_text("def broken(::\n")
    assert before != source_digests(tmp_path, "model.py")


def test_sources_change_with_a_package_in_the_folder(tmp_path: Path) -> None:
    (tmp_path / "unet").mkdir()
    (tmp_path / "unet" / "__init__.py").write_text("from unet.blocks import Block\n")
    (tmp_path / "unet" / "blocks.py").write_text("Block = 1\n")
    (tmp_path / "model.py").write_text("from unet import Block\n")
    before = source_digests(tmp_path, "model.py")
    (tmp_path / "unet" / "blocks.py").write_text("Block = 2\n")
    assert source_digests(tmp_path, "model.py") != before
