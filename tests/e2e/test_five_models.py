"""The tiny variants of every model, cell by cell: the verdicts are the expected ones."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import polars as pl
import pytest

from flows.planning import plan
from servegrid.domain.root import ROOT
from servegrid.plan.options import SweepOptions
from servegrid.store.site import default_site

pytestmark = pytest.mark.check

EXPECTED = pl.read_csv(ROOT / "tests" / "expected_cells.csv").sort("cell")
"""Every CPU cell of the tiny variants: a changed row needs an ADR."""
LIMITS = ("--max-batch-size", "4", "--request-count", "10", "--generator", "client")
NOISE = ("warning", "deprecated", "loss_type", "onednn", "absl")
"""Parts of lines that other libraries print."""


@pytest.fixture(scope="module")
def sweep(
    make_command: Callable[..., Any], tmp_path_factory: pytest.TempPathFactory
) -> Callable[..., pl.DataFrame]:
    """The cells' table of a sweep with a few points a scenario, which shows no warning and leaves nothing in
    the user's folder and in that for temporary files."""
    command = make_command(ROOT / "models")
    outside = {name: tmp_path_factory.mktemp(name) for name in ("HOME", "TMPDIR")}
    env = {name: value for name, value in command.env.items() if not name.startswith("XDG_")}
    command = replace(command, env=env | {name: str(folder) for name, folder in outside.items()})

    def run(*arguments: str) -> pl.DataFrame:
        code, output = command.run("sweep", *arguments, *LIMITS, timeout=2400)
        assert code == 0, output
        assert [line for line in output.splitlines() if any(word in line.lower() for word in NOISE)] == []
        assert [path for folder in outside.values() for path in folder.rglob("*")] == []
        return pl.read_parquet(command.campaign / "cells.parquet").sort("cell")

    return run


def check(cells: pl.DataFrame, expected: pl.DataFrame) -> None:
    """Verdicts as expected (how steady a point is depends on what else the machine does), and every metric
    near the framework's and far from a blind guess."""
    found = cells.select("cell", verdict=pl.col("verdict").replace("unstable", "passed"))
    assert found.to_dicts() == expected.to_dicts()
    for row in cells.filter(pl.col("verdict") != "unsupported").iter_rows(named=True):
        assert abs(row["metric_drop"]) < 0.1 * abs(row["framework_metric"]), row["cell"]
        assert abs(row["shuffled_metric"] - row["framework_metric"]) > 0.2 * abs(row["framework_metric"])


def test_the_plan_has_exactly_the_expected_cells() -> None:
    site = default_site().model_copy(update={"models": ROOT / "models"})
    found = plan(SweepOptions(models=("all",), generator="client"), site)
    cells = [(cell.name, "passed") for model in found for cell in model.plan.cells]
    cells += [(entry.cell.name, "unsupported") for model in found for entry in model.plan.excluded]
    assert sorted(cells) == EXPECTED.rows()


def test_cells_of_both_tensorflow_models(sweep: Callable[..., pl.DataFrame]) -> None:
    models = ("resnet50", "wide_and_deep")
    words = [word for model in models for word in ("--model", model)]
    options = ("--format", "tf-savedmodel", "--precision", "fp32", "--accelerator", "none")
    cells = sweep(*words, *options, "--max-concurrency", "1", "--window-s", "0.3")
    check(cells, EXPECTED.filter(pl.col("cell").is_in([f"{m}-tiny-tf-savedmodel-fp32" for m in models])))


@pytest.mark.long
@pytest.mark.timeout(3000)
def test_every_cell_of_every_model(sweep: Callable[..., pl.DataFrame]) -> None:
    cells = sweep("--model", "all", "--max-concurrency", "4")
    check(cells, EXPECTED)
    built = cells.filter(pl.col("artifact_bytes").is_not_null())
    pairs = built.pivot("precision", index=["model", "format"], values="artifact_bytes")
    pairs = pairs.drop_nulls(["fp32", "fp16"])
    assert pairs.height >= 6
    assert (pairs["fp16"] < 0.8 * pairs["fp32"]).all(), pairs
