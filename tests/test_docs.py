"""The documents keep up with the commands, the files and the fields that they speak of."""

from __future__ import annotations

import functools
import re
import runpy
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from tasks.core.site import ROOT

README = (ROOT / "README.md").read_text()
PAGES = [README, *(path.read_text() for path in sorted((ROOT / "docs").glob("*.md")))]
SERVEGRID = str(Path(sys.executable).with_name("servegrid"))


def blocks(text: str) -> list[str]:
    return re.findall(r"```\n(.*?)```", text, flags=re.DOTALL)


def commands(program: str) -> list[str]:
    every = [block for page in PAGES for block in blocks(page)]
    lines = [line.split("#")[0].strip() for block in every for line in block.splitlines()]
    return sorted({line for line in lines if line.startswith(f"{program} ")})


@functools.cache
def help_of(*command: str) -> str:
    done = subprocess.run([SERVEGRID, *command, "--help"], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.parametrize("line", commands("servegrid"))
def test_every_command_of_the_documents_is_one(line: str) -> None:
    words = shlex.split(line)[1:]
    command = [] if words[0].startswith("--") else words[:1]
    for option in (word for word in words if word.startswith("--")):
        assert option in help_of(*command)


def test_every_command_is_in_the_readme() -> None:
    names = re.findall(r"^│ (\w+) ", help_of(), flags=re.MULTILINE)
    assert {"plan", "sweep", "report", "doctor"} <= set(names)
    for name in names:
        assert f"servegrid {name}" in README


@pytest.mark.parametrize("line", commands("make"))
def test_every_make_target_of_the_documents_is_one(line: str) -> None:
    target = line.split()[1]
    done = subprocess.run(["make", "--dry-run", target], cwd=ROOT, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr


def test_every_folder_of_the_tree_is_there() -> None:
    tree = next(block for block in blocks(README) if block.startswith("flows/"))
    for name in re.findall(r"^(\w+/(?:adr/)?)", tree, flags=re.MULTILINE):
        assert (ROOT / name).is_dir(), name


def test_page_of_formats_is_made_of_the_expected_cells() -> None:
    make = runpy.run_path(str(ROOT / "docs" / "make_formats.py"))["text"]
    cells = (ROOT / "tests" / "expected_cells.csv").read_text()
    assert (ROOT / "docs" / "formats.md").read_text() == make(cells), "run python docs/make_formats.py"


def test_page_of_faults_has_just_the_faults_that_there_are(faults: dict[str, list[tuple[str, ...]]]) -> None:
    """`faults` are those of every file that was collected, which may be a part of the suite."""
    row = runpy.run_path(str(ROOT / "docs" / "make_reliability.py"))["row"]
    page = (ROOT / "docs" / "reliability.md").read_text().splitlines()
    found = {line.rpartition(" | ")[0] for line in page if line.startswith("| ") and line.count(" | ") > 1}
    wanted = {row(what, promise) for of_file in faults.values() for _, what, promise in of_file}
    assert wanted <= found, "run `make reliability`"
    files = {str(p) for p in (ROOT / "tests").rglob("test_*.py") if "pytest.mark.fault(" in p.read_text()}
    if files <= set(faults):
        assert found - {"| fault | promised", "| --- | ---"} == wanted, "run `make reliability`"


def test_nothing_went_wrong_as_the_page_of_faults_was_made() -> None:
    page = (ROOT / "docs" / "reliability.md").read_text()
    counts = dict(re.findall(r"^\| ([^|]+) \| (\d+) \|$", page, flags=re.MULTILINE))
    assert int(counts["distinct classes of input tried"]) >= 60
    for name in ("wrong outcomes", "rows lost", "processes left", "shared memory and temporary files left"):
        assert counts[name] == "0", name


def test_every_setting_is_in_the_readme() -> None:
    for name in re.findall(r"SERVEGRID_\w+", (ROOT / "tasks" / "core" / "site.py").read_text()):
        assert name in README, name


def test_the_tree_names_every_module_of_the_flows_and_every_stage() -> None:
    tree = README.split("## The tree")[1]
    words = set(re.findall(r"[\w.]+/?", tree))
    modules = [*ROOT.glob("flows/[!_]*.py"), *ROOT.glob("tasks/[!_]*.py")]
    unnamed = [path.name for path in modules if not {path.name, path.stem} & words]
    folders = [path.parent.name for path in ROOT.glob("tasks/*/__init__.py")]
    assert unnamed + [name for name in folders if f"{name}/" not in words] == []
