"""The names of the files in the model folders."""

from __future__ import annotations

from importlib.machinery import PathFinder
from pathlib import Path

import pytest

from servegrid.domain.root import ROOT

FILES = sorted((ROOT / "models").glob("*/*.py"))


@pytest.mark.parametrize("path", FILES, ids=lambda path: f"{path.parent.name}/{path.stem}")
def test_a_file_hides_no_installed_module(path: Path) -> None:
    assert PathFinder.find_spec(path.stem) is None


@pytest.mark.parametrize("path", FILES, ids=lambda path: f"{path.parent.name}/{path.stem}")
def test_a_file_does_not_repeat_the_name_of_its_folder(path: Path) -> None:
    first = path.stem.split("_")[0]
    assert "_" not in path.stem or not path.parent.name.startswith(first)
