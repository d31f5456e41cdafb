"""The hosted runtime in a model version's folder is complete, and runs where servegrid is not installed."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

from servegrid.formats import FORMATS
from servegrid.formats.runtime_files import ENTRY, LIBRARY, MODEL, copy_runtime, runtime_files, session_file
from servegrid.host.environment import missing

PROJECT = {"servegrid", "tasks", "flows"}
FOLDERS = {known.hosted.folder: known for known in FORMATS.values() if known.hosted}
LOAD = """
import sys
from importlib import import_module
class Refuse:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in ("servegrid", "tasks", "flows"):
            raise ModuleNotFoundError(f"{name} is not installed in Triton")
sys.meta_path.insert(0, Refuse())
sys.path.insert(0, sys.argv[1])
session = import_module(f"1.formats.{sys.argv[2]}.session")
print(session.Session.__name__, session.__file__)
"""


@pytest.mark.parametrize("folder", FOLDERS)
def test_session_loads_where_servegrid_is_not_installed(folder: str, tmp_path: Path) -> None:
    if absent := missing(FOLDERS[folder].libraries):
        pytest.skip(f"not installed: {', '.join(absent)}")
    copy_runtime(tmp_path / "1", folder)
    command = [sys.executable, "-I", "-W", "ignore", "-c", LOAD, str(tmp_path), folder]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == ["Session", str(tmp_path / "1" / session_file(folder))]


@pytest.mark.parametrize("folder", FOLDERS)
def test_runtime_imports_the_project_relatively_only(folder: str) -> None:
    for file in runtime_files(MODEL, session_file(folder)):
        for node in ast.walk(ast.parse((LIBRARY / file).read_text())):
            names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            names += [str(node.module)] if isinstance(node, ast.ImportFrom) and not node.level else []
            assert PROJECT.isdisjoint(name.partition(".")[0] for name in names), f"{file}: {names}"


def test_runtime_of_a_format_has_its_own_modules_and_no_other_formats() -> None:
    found = {file.as_posix() for file in runtime_files(MODEL, session_file("torchscript"))}
    assert {"hosting/pipeline.py", "hosting/torch_device.py"} <= found
    assert "formats/torchscript/layer_norm.py" in found, "it is imported inside a function"
    folders = {Path(file).parent.as_posix() for file in found}
    assert folders == {"hosting", "formats/torchscript"}
    assert not {"format.py", "convert.py"} & {Path(file).name for file in found}


def test_every_file_is_copied_to_its_own_place(tmp_path: Path) -> None:
    copy_runtime(tmp_path, "aoti")
    expected = {file: (LIBRARY / file).read_text() for file in runtime_files(MODEL, session_file("aoti"))}
    expected[Path("model.py")] = ENTRY
    assert {p.relative_to(tmp_path): p.read_text() for p in tmp_path.rglob("*.*")} == expected
