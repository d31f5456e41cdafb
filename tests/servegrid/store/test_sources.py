"""Which files of a model's folder are part of the keys of its stages."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from servegrid.domain.plugins import Plugin
from servegrid.domain.spec import ModelSpec
from servegrid.store.sources import imported_modules, plugin_sources

FILES = {
    "model.yaml": "name: toy\n",
    "model.py": "import importlib, sys\nfrom pathlib import Path\nimport net\nimport library_net\n",
    "net.py": "import torch.nn\n",
    "late.py": "loaded by importlib.import_module\n",
    "blocks/deep/block.py": "found by sys.path.insert\n",
    "words.txt": "read when model.py runs\n",
    "prepare.py": "",
    "metrics.py": "",
    "client.py": "",
    "published.csv": "",
    "README.md": "",
    "data/words.txt": "a",
    "data/passages.md": "read by prepare.py",
    "data/README.md": "read by prepare.py, too",
}


@pytest.fixture
def plugin(tmp_path: Path, model_data: dict[str, Any]) -> Plugin:
    folder = tmp_path / "toy"
    for name, text in FILES.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    return Plugin(spec=ModelSpec.model_validate(model_data), folder=folder)


def changed_by(plugin: Plugin, name: str, text: str = "changed\n") -> set[str]:
    """The sources that differ once a file has this content."""
    before = plugin_sources(plugin)
    (plugin.folder / name).parent.mkdir(parents=True, exist_ok=True)
    (plugin.folder / name).write_text(text)
    after = plugin_sources(plugin)
    return {key for key in {*before, *after} if before.get(key) != after.get(key)}


@pytest.mark.parametrize(
    "name",
    [
        "model.py",
        "net.py",
        "late.py",
        "blocks/deep/block.py",
        "words.txt",
        "prepare.py",
        "data/words.txt",
        "data/passages.md",
        "data/README.md",
        "new.bin",
    ],
)
def test_every_file_that_a_step_can_read_counts(plugin: Plugin, name: str) -> None:
    assert changed_by(plugin, name) == {name}


@pytest.mark.parametrize(
    "name",
    [
        "model.yaml",
        "metrics.py",
        "client.py",
        "published.csv",
        "README.md",
        "__pycache__/net.cpython-311.pyc",
        "blocks/__pycache__/block.cpython-311.pyc",
        "old.pyc",
        ".git/index",
        "data/.ipynb_checkpoints/words.txt",
    ],
)
def test_generated_files_and_files_of_no_build_step_do_not_count(plugin: Plugin, name: str) -> None:
    assert changed_by(plugin, name) == set()


@pytest.mark.parametrize(
    ("name", "line"),
    [
        ("metrics.py", "from metrics import shared"),
        ("client.py", "importlib.import_module('client')"),
        ("published.csv", "open(folder / 'published.csv')"),
        ("README.md", "(folder / 'README.md').read_text()"),
    ],
)
def test_file_of_no_build_step_counts_where_another_names_it(plugin: Plugin, name: str, line: str) -> None:
    changed_by(plugin, "net.py", f"{line}\n")
    assert changed_by(plugin, name) == {name}


def test_removed_file_counts(plugin: Plugin) -> None:
    (plugin.folder / "words.txt").unlink()
    assert "words.txt" not in plugin_sources(plugin)


def test_file_with_wrong_syntax_counts_by_its_content(plugin: Plugin) -> None:
    changed_by(plugin, "net.py", "def broken(:\n")
    assert changed_by(plugin, "net.py", "def broken(::\n") == {"net.py"}


def test_imported_modules_of_other_folders_count_by_their_whole_path(plugin: Plugin, tmp_path: Path) -> None:
    library = tmp_path / "library"
    (library / "deeper").mkdir(parents=True)
    (library / "library_net.py").write_text("from deeper import layers\n")
    (library / "deeper" / "layers.py").write_text("import net\n")
    (library / "unused.py").write_text("")
    with_library = plugin.model_copy(update={"paths": (library,)})
    modules = {str(library / "library_net.py"), str(library / "deeper" / "layers.py")}
    assert set(plugin_sources(with_library)) - set(plugin_sources(plugin)) == modules
    (library / "unused.py").write_text("changed")
    before = plugin_sources(with_library)
    (library / "deeper" / "layers.py").write_text("changed = 1")
    after = plugin_sources(with_library)
    assert {key for key in after if before[key] != after[key]} == {str(library / "deeper" / "layers.py")}


def test_first_folder_with_a_module_gives_it(tmp_path: Path) -> None:
    for folder in ("first", "second"):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "net.py").write_text("import net\n")
    (entry := tmp_path / "model.py").write_text("import net\n")
    places = (tmp_path / "first", tmp_path / "second")
    assert imported_modules([entry], places) == {tmp_path / "first" / "net.py"}


def test_files_of_parameters_count(plugin: Plugin) -> None:
    with_file = plugin.model_copy(update={"files": {"checkpoint": "d1"}})
    assert plugin_sources(with_file) == plugin_sources(plugin) | {"--param checkpoint": "d1"}
