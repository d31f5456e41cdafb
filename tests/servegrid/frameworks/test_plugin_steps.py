"""The files of a model folder, loaded by path."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path

import pytest

from servegrid.frameworks.plugin_steps import import_path, load
from servegrid.store.build import Job


def model_folder(folder: Path, value: str) -> Job:
    """A model whose data loader imports a file and a package that other models have, too."""
    (folder / "parts").mkdir(parents=True)
    (folder / "dataloader.py").write_text("from parts.inner import INNER\nfrom tiny import VALUE\n")
    (folder / "tiny.py").write_text(f"VALUE = {value!r}\n")
    (folder / "parts" / "inner.py").write_text(f"INNER = {value!r}\n")
    return Job(step="profile_data", plugin=folder, inputs={}, output=folder, fields={})


def test_models_with_equal_file_names_are_kept_apart(tmp_path: Path) -> None:
    paths, found = list(sys.path), []
    for job in (model_folder(tmp_path / "one", "1"), model_folder(tmp_path / "two", "2")):
        with import_path(job.plugin):
            loaded = load(job, "dataloader.py")
            found.append((loaded.VALUE, loaded.INNER))
    assert found == [("1", "1"), ("2", "2")]
    assert sys.path == paths
    assert not {"tiny", "parts", "parts.inner", "_plugin_dataloader"} & set(sys.modules)


def test_modules_of_a_model_that_fails_are_removed(tmp_path: Path) -> None:
    job = model_folder(tmp_path, "1")
    with pytest.raises(KeyError), import_path(job.plugin):
        load(job, "dataloader.py")
        raise KeyError
    assert "tiny" not in sys.modules


def test_an_installed_module_below_the_folder_stays(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    installed = tmp_path / "venv"
    installed.mkdir()
    (installed / "installed_there.py").touch()
    monkeypatch.syspath_prepend(installed)
    with import_path(tmp_path):
        module = importlib.import_module("installed_there")
    assert sys.modules.pop("installed_there") is module
