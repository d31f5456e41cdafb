"""Modules that a string names are there, and none lies above the module that names it."""

from __future__ import annotations

import ast
import re
import tomllib
from importlib.util import find_spec
from pathlib import Path

import pytest

from servegrid.domain.root import ROOT
from servegrid.formats import FORMATS

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
CONTRACTS = {contract["name"]: contract for contract in PROJECT["tool"]["importlinter"]["contracts"]}
LAYERS = CONTRACTS["layers: no import goes up"]["layers"]
HEIGHT = {name: -number for number, layer in enumerate(LAYERS) for name in layer.split(" : ")}
NAME = re.compile(rf"((?:{'|'.join(map(re.escape, HEIGHT))})(?:\.\w+)*)(?::(\w+))?")
PROGRAMS = {"servegrid.frameworks"}
"""Modules that the store starts as a program of its own (`python -m`) and does not load."""


def height(module: str) -> int:
    return next(number for name, number in HEIGHT.items() if f"{module}.".startswith(f"{name}."))


def named() -> list[tuple[Path, str, str | None]]:
    """File, module and the name in it, of every string that is nothing but such a name."""
    found = []
    for path in (p for top in ("flows", "tasks", "servegrid") for p in (ROOT / top).rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Constant) and isinstance(node.value, str):
                match = NAME.fullmatch(node.value)
                found += [(path, match[1], match[2])] if match and "." in node.value else []
    return found


def test_every_module_that_a_string_names_is_there_and_not_above_the_one_that_names_it() -> None:
    names = named()
    assert len(names) > 20
    for path, module, attribute in names:
        where = path.relative_to(ROOT).with_suffix("").as_posix().replace("/", ".")
        spec = find_spec(module)
        assert spec is not None and spec.origin is not None, f"{where} names {module}"
        below = module in PROGRAMS or height(module) <= height(where)
        assert below, f"{where} names {module}, which lies above it"
        if attribute:
            tops = ast.parse(Path(spec.origin).read_text()).body
            known = {getattr(node, "name", None) for node in tops}
            assert attribute in known, f"{where} names {module}:{attribute}"


@pytest.mark.parametrize(
    "folder", sorted({known.hosted.folder for known in FORMATS.values() if known.hosted})
)
def test_hosted_format_has_a_session(folder: str) -> None:
    assert find_spec(f"servegrid.formats.{folder}.session")
