"""The documents keep up with the commands, the files and the fields that they speak of."""

from __future__ import annotations

import csv
import functools
import re
import runpy
import shlex
import subprocess
import sys
from pathlib import Path

import polars as pl
import pytest

from servegrid.campaign.results import CELLS, MEASUREMENTS
from servegrid.domain.root import ROOT

README = (ROOT / "README.md").read_text()
CONTRIBUTING = (ROOT / "CONTRIBUTING.md").read_text()
FILES = [
    *(ROOT / name for name in ("README.md", "CONTRIBUTING.md", "CHANGELOG.md", "models/README.md")),
    *sorted((ROOT / "docs").rglob("*.md")),
]
PAGES = [path.read_text() for path in FILES]
SERVEGRID = str(Path(sys.executable).with_name("servegrid"))


def blocks(text: str) -> list[str]:
    return re.findall(r"```\n(.*?)```", text, flags=re.DOTALL)


def commands(program: str) -> list[str]:
    every = [block for page in PAGES for block in blocks(page)]
    lines = [line.split("#")[0].strip() for block in every for line in block.splitlines()]
    lines += [
        found for page in PAGES for found in re.findall(rf"^\| `({program} [^`]*)` \|", page, re.MULTILINE)
    ]
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


def test_the_readme_is_short() -> None:
    assert len(README.splitlines()) < 120


def test_every_folder_of_the_tree_is_there() -> None:
    tree = next(block for block in blocks(CONTRIBUTING) if block.startswith("flows/"))
    folder = ""
    for indent, name in re.findall(r"^( *)(\w+/)", tree, flags=re.MULTILINE):
        folder = folder if indent else name
        assert (ROOT / (folder + name if indent else name)).is_dir(), name


@pytest.mark.parametrize("page", FILES, ids=lambda path: str(path.relative_to(ROOT)))
def test_every_link_of_a_page_leads_to_a_file(page: Path) -> None:
    links = re.findall(r"\]\(([^)#\s]+)", page.read_text())
    missing = [link for link in links if "://" not in link and not (page.parent / link).exists()]
    assert missing == []


def test_every_page_that_the_code_names_is_there() -> None:
    sources = [
        path for folder in ("flows", "tasks", "servegrid", "tests") for path in (ROOT / folder).rglob("*.py")
    ]
    page = re.compile(r"(?<![\w/])docs/[a-z0-9/-]+\.md\b")
    named = {name for path in sources for name in page.findall(path.read_text())}
    assert [name for name in sorted(named) if not (ROOT / name).exists()] == []


def test_page_of_formats_is_made_of_the_expected_cells() -> None:
    make = runpy.run_path(str(ROOT / "docs" / "make_formats.py"))["text"]
    cells = (ROOT / "tests" / "expected_cells.csv").read_text()
    assert (ROOT / "docs" / "formats.md").read_text() == make(cells), "run python docs/make_formats.py"


def test_each_model_has_a_page_made_of_its_data() -> None:
    made = runpy.run_path(str(ROOT / "docs" / "make_models.py"))["pages"]()
    written = {path.name: path.read_text() for path in (ROOT / "docs" / "models").iterdir()}
    assert written == made, "run python docs/make_models.py"
    models = {path.parent.name for path in (ROOT / "models").glob("[!_]*/model.yaml")}
    assert {f"{model}.md" for model in models} == set(written)


def test_a_model_s_page_has_our_best_figure_beside_the_published_one() -> None:
    page = (ROOT / "docs" / "models" / "bert_large_qa.md").read_text()
    table = pl.read_parquet(ROOT / "docs" / "measurements.parquet")
    point = {"model": "bert_large_qa", "scenario": "offline", "format": "onnx", "precision": "fp16"}
    rows = table.filter(variant="full", gpu="NVIDIA H200", batch=16, concurrency=1, **point)
    ours = max(rows["throughput"].to_list())
    with (ROOT / "models" / "bert_large_qa" / "published.csv").open(newline="") as file:
        listed = [row for row in csv.DictReader(file) if row["card"].startswith("A100")]
    same = [row for row in listed if (row["scenario"], row["precision"]) == ("offline", "fp16")]
    best = max(
        (float(row["column: Inferences/Second"]), row["format"])
        for row in same
        if float(row["column: Batch"]) == 16 and float(row["column: Concurrency"]) == 1
    )
    (line,) = re.findall(r"\| NVIDIA H200 \| offline \| onnx \| fp16 \| 16 \| 1 \|.*", page)
    assert f"| {ours:.1f} |" in line and f"| {best[0]:.1f} ({best[1]}) |" in line


def test_page_of_gpu_results_is_made_of_the_measurements() -> None:
    make = runpy.run_path(str(ROOT / "docs" / "make_gpu_results.py"))["text"]
    table = pl.read_parquet(ROOT / "docs" / "measurements.parquet")
    page = (ROOT / "docs" / "gpu-results.md").read_text()
    assert page == make(table), "run python docs/make_gpu_results.py"


def test_a_campaign_is_added_to_the_measurements_once(tmp_path: Path) -> None:
    module = runpy.run_path(str(ROOT / "docs" / "make_measurements.py"))
    cell = {"cell": "c", "profile": "h200"}
    pl.DataFrame([cell | dict.fromkeys(module["OF_CELL"])]).write_parquet(tmp_path / "cells.parquet")
    point = cell | {"campaign": "20261129-155547-f9bd", "shared_memory": "cuda", "protocol": "grpc"}
    pl.DataFrame([point, point]).write_parquet(tmp_path / "measurements.parquet")
    found = module["rows"](tmp_path, "m", "servegrid sweep", "abc", "label", "")
    table = tmp_path / "table.parquet"
    module["append"](found, table)
    row = pl.read_parquet(table).row(1, named=True)
    assert row["setting"] == "cores at rest, cuda shared memory, grpc"
    assert str(row["date"]) == "2026-11-29"
    with pytest.raises(SystemExit, match="20261129-155547-f9bd"):
        module["append"](found, table)


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


def test_every_setting_is_in_the_documents() -> None:
    texts = [(ROOT / "servegrid" / name).read_text() for name in ("store/site.py", "domain/root.py")]
    for name in re.findall(r"SERVEGRID_\w+", "".join(texts)):
        assert name in (ROOT / "docs" / "installing.md").read_text(), name


def test_every_column_of_a_row_is_in_the_page_about_measuring() -> None:
    page = (ROOT / "docs" / "measuring.md").read_text()
    assert [name for name in {**CELLS, **MEASUREMENTS} if f"`{name}`" not in page] == []
