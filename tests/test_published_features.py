"""docs/published-features.md: every feature of the published deployments has a place that exists."""

from __future__ import annotations

import re
import runpy
from itertools import pairwise
from typing import Any

import pytest
import typer
from typer.testing import CliRunner

from servegrid.campaign.results import CELLS, MEASUREMENTS
from servegrid.cli.main import app
from servegrid.domain.root import ROOT
from servegrid.domain.spec import ModelSpec
from servegrid.plan.models import load_model

MAKE = runpy.run_path(str(ROOT / "docs" / "make_published_features.py"))
KNOWN, PUBLISHED = MAKE["read"]()
ROWS = list(KNOWN.iter_rows(named=True))
SWEEP: Any = typer.main.get_command(app)
OPTIONS = {name for of in (SWEEP, SWEEP.commands["sweep"]) for option in of.params for name in option.opts}


def quoted(row: dict[str, str]) -> list[str]:
    return re.findall(r"`([^`]+)`", row["here"])


def fields(of: Any) -> set[str]:
    """The names of all fields of model.yaml, at any depth."""
    text = str(of.model_json_schema())
    return set(re.findall(r"'(\w+)'", text))


def test_page_is_made_of_the_features_and_the_published_rows() -> None:
    page = (ROOT / "docs" / "published-features.md").read_text(encoding="utf-8")
    assert page == MAKE["text"](KNOWN, PUBLISHED), "run python docs/make_published_features.py"


def test_no_feature_is_without_a_place() -> None:
    assert [row["name"] for row in ROWS if not row["here"].strip()] == []


@pytest.mark.parametrize("model", PUBLISHED)
def test_every_column_and_setting_of_the_published_rows_is_a_feature(model: str) -> None:
    listed = {(row["kind"], row["name"]) for row in ROWS if model in row["models"].split()}
    for column in PUBLISHED[model].columns:
        source, _, name = column.partition(": ")
        if source in ("parameter", "column"):
            assert ("column", MAKE["plain"](name)) in listed, column
        if source == "example":
            assert (("setting", name) if name.isupper() else ("flag", f"--{name}")) in listed, column


def test_every_option_file_and_stage_exists() -> None:
    stages = {path.stem for path in (ROOT / "tasks").glob("*.py")} | {"online", "offline"}
    stages |= set(re.findall(r'stage="(\w+)"', (ROOT / "tasks" / "reference.py").read_text()))
    for row in ROWS:
        for part in quoted(row):
            for option in re.findall(r"--[a-z][a-z-]*", part):
                assert option in OPTIONS, (row, option)
            if "/" in part and "." in part:
                assert (ROOT / part).exists(), row
        for stage in re.findall(r"stages? `(\w+)`(?: and `(\w+)`)?", row["here"]):
            assert {*stage} - {""} <= stages, row


def test_every_field_and_column_exists() -> None:
    known = fields(ModelSpec)
    columns = {*CELLS, *MEASUREMENTS}
    for row in ROWS:
        if row["kind"] == "column":
            first = quoted(row)[0]
            assert first in columns, row
        if row["kind"] != "stage" and "of `model.yaml`" in row["here"]:
            before = row["here"].split("of `model.yaml`")[0]
            path = re.findall(r"`([a-z_.0-9]+)`", before)[-1]
            assert set(path.split(".")) <= known, row


@pytest.mark.parametrize("model", PUBLISHED)
def test_every_published_table_has_a_command_whose_cell_the_model_offers(model: str) -> None:
    spec = load_model(ROOT / "models", model).spec
    lines = MAKE["tables"](PUBLISHED[model], model)
    keys = ["scenario", "card", "format", "precision", "accelerator"]
    assert len(lines) == PUBLISHED[model].select(keys).n_unique()
    for line in lines:
        (command,) = re.findall(r"`servegrid (.+)`", line)
        words = command.split()
        chosen = dict(pairwise(words))
        assert (ROOT / "gpu_profiles" / f"{chosen['--profile']}.yaml").exists()
        assert chosen["--precision"] in spec.formats[chosen["--format"]].precisions
    plan = CliRunner().invoke(app, ["plan", *words[1:]])  # the last one: its options are those of all
    assert plan.exit_code == 0 and chosen["--format"] in plan.output, plan.output
