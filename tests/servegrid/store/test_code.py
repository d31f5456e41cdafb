"""The code of a step: which modules count, and which changes of them."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from servegrid.domain.root import ROOT
from servegrid.store.code import code_digests

MODULES = {
    "__init__": "",
    "steps/__init__": "from servegrid import registry\n",
    "steps/build": '''"""Builds."""

from typing import TYPE_CHECKING

from servegrid import values
from servegrid.steps import helper
from .near import close

if TYPE_CHECKING:
    from servegrid import hints


class Error(Exception):
    """It failed."""


def build(x):
    """Builds one."""
    from servegrid.late import thing

    return x + 1  # one more
''',
    "steps/near": "from ..far import away\n",
    "steps/other": "import servegrid.cli\n",
    "steps/helper": "import json\nimport numpy\n",
    "values": "LIMIT = 3\n",
    "late": "from servegrid.package import name\n",
    "package/__init__": "name = 1\n",
    "package/unused": "",
    "far": "away = 1\n",
    "registry": "",
    "hints": "",
    "cli": "",
}
STEP = "servegrid.steps.build"
CLOSURE = ["far", "late", "package", "steps.build", "steps.helper", "steps.near", "values"]


@pytest.fixture
def root(tmp_path: Path) -> Path:
    for name, text in MODULES.items():
        path = tmp_path / "servegrid" / f"{name}.py"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return tmp_path


def digests(root: Path) -> dict[str, str]:
    """The digests of the step's code as the files are now."""
    code_digests.cache_clear()
    return code_digests(STEP, root=root)


def changed_by(root: Path, name: str, old: str, new: str) -> set[str]:
    """The modules whose digests change when this text of a file does."""
    before = digests(root)
    path = root / "servegrid" / f"{name}.py"
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new) if old else text + new)
    after = digests(root)
    return {module for module in {*before, *after} if before.get(module) != after.get(module)}


def test_code_of_a_step_is_its_module_and_all_that_it_imports(root: Path) -> None:
    assert list(digests(root)) == [f"servegrid.{name}" for name in CLOSURE]


@pytest.mark.parametrize(
    ("name", "old", "new"),
    [
        ("steps/build", "x + 1", "x + 2"),
        ("steps/build", "Exception", "ValueError"),
        ("steps/helper", "", "limit = 1\n"),
        ("values", "3", "4"),
        ("package/__init__", "1", "2"),
        ("far", "1", "2"),
    ],
)
def test_changed_statement_changes_the_digest_of_its_module(
    root: Path, name: str, old: str, new: str
) -> None:
    module = f"servegrid/{name}".removesuffix("/__init__").replace("/", ".")
    assert changed_by(root, name, old, new) == {module}


@pytest.mark.parametrize(
    "name", ["steps/other", "steps/__init__", "package/unused", "registry", "hints", "cli"]
)
def test_changed_statement_of_another_module_does_not_count(root: Path, name: str) -> None:
    assert changed_by(root, name, "", "changed = 1\n") == set()


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("# one more", "# the next number"),
        ('"""Builds."""', '"""Builds one number from another."""'),
        ('    """Builds one."""\n', ""),
        ('"""It failed."""', '"""The build failed."""'),
        ("x + 1", "(\n        x\n        + 1\n    )"),
        ("from servegrid import hints", "from servegrid import cli"),
    ],
)
def test_comments_docstrings_layout_and_hints_do_not_count(root: Path, old: str, new: str) -> None:
    assert changed_by(root, "steps/build", old, new) == set()


def test_new_import_adds_its_module(root: Path) -> None:
    changed = changed_by(root, "steps/near", "", "from servegrid import cli\n")
    assert changed == {"servegrid.steps.near", "servegrid.cli"}


def test_module_that_is_missing_is_an_error(root: Path) -> None:
    with pytest.raises(ModuleNotFoundError, match=r"servegrid\.nowhere"):
        code_digests("servegrid.nowhere", root=root)


KEYS = """
from servegrid.domain.values import ArtifactRef, Product
from servegrid.plan.models import load_model
from servegrid.domain.root import ROOT
from tasks import convert, export
plugin = load_model(ROOT / "models", "bert_large_qa")
ref = ArtifactRef(digest="a", path="objects/a", size=1)
for format_, export_format in (("onnx", "onnx"), ("ts-trace", "ts-trace")):
    product = Product(model="bert_large_qa", variant="tiny", export_format=export_format, format=format_,
                      precision="fp32", opset=17, triton_release="24.10",
                      parameters=plugin.spec.variants["tiny"].parameters)
    print(export.request(plugin, product, ref).key)
    print(convert.request(plugin, product, ref).key)
"""
"""Prints the keys of a model's export to ONNX, its conversion to it, and the same of TorchScript."""


@pytest.mark.parametrize(
    ("file", "old", "new", "rebuilt"),
    [
        ("servegrid/formats/onnx/fusion.py", "opt_level=0", "opt_level=1", {"onnx conversion"}),
        (
            "servegrid/frameworks/torch_network.py",
            "dynamo=False",
            "dynamo=True",
            {"onnx export", "ts-trace export"},
        ),
        ("servegrid/frameworks/tensorflow_network.py", "verbose=False", "verbose=True", set()),
        ("servegrid/formats/trt/convert.py", "STRONGLY_TYPED", "OTHER", set()),
        ("servegrid/cli/main.py", "import", "import os, ", set()),
        ("servegrid/formats/onnx/fusion.py", "return model", "return model  # fused", set()),
        ("servegrid/formats/onnx/fusion.py", '"""Fusion', '"""The fusion', set()),
    ],
)
def test_keys_of_stages_follow_the_code_of_their_steps(
    tmp_path: Path, file: str, old: str, new: str, rebuilt: set[str]
) -> None:
    names = ["onnx export", "onnx conversion", "ts-trace export", "ts-trace conversion"]
    for folder in ("servegrid", "tasks"):
        shutil.copytree(ROOT / folder, tmp_path / folder, ignore=shutil.ignore_patterns("__pycache__"))

    def keys() -> list[str]:
        done = subprocess.run(
            [sys.executable, "-c", KEYS],
            env={"PYTHONPATH": str(tmp_path), "SERVEGRID_ROOT": str(ROOT), "PATH": "/usr/bin:/bin"},
            cwd=tmp_path, capture_output=True, text=True, check=True,
        )  # fmt: skip
        return done.stdout.split()

    before = keys()
    path = tmp_path / file
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new, 1))
    found = {name for name, one, other in zip(names, before, keys(), strict=True) if one != other}
    assert found == rebuilt
