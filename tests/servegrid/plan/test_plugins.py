"""Finding model folders and profiles."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from servegrid.domain.errors import UserError
from servegrid.domain.plugins import load_profile
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


def test_error_of_an_unknown_model_names_the_nearest_and_all(models: Path) -> None:
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


def test_error_of_a_wrong_model_yaml_has_its_path(models: Path) -> None:
    (models / "resnet50" / "model.yaml").write_text("name: resnet50\n")
    with pytest.raises(UserError, match=r"resnet50/model\.yaml.*description"):
        load_model(models, "resnet50")


def test_error_of_an_unknown_profile_names_the_nearest(tmp_path: Path) -> None:
    for name in ("a30", "a100-80gb", "cpu"):
        (tmp_path / f"{name}.yaml").touch()
    with pytest.raises(UserError, match=r"profile.*'a100'.*'a100-80gb'"):
        load_profile(tmp_path, "a100")
