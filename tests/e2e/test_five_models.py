"""The tiny variants of every model, each cell for real: its verdict is the one that is expected."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import polars as pl
import pytest

from tasks.core.site import ROOT

EXPECTED = pl.read_csv(ROOT / "tests" / "expected_cells.csv")
"""Every CPU cell of the tiny variants: a changed row needs an ADR."""


@pytest.fixture(scope="module")
def cells(make_command: Callable[..., Any]) -> pl.DataFrame:
    """The cells of a sweep over all models with one point a scenario, as the campaign's table has them."""
    command = make_command(ROOT / "models")
    limits = ("--max-batch-size", "4", "--max-concurrency", "1", "--generator", "client")
    code, output = command.run("sweep", "--model", "all", *limits, "--request-count", "10", timeout=900)
    assert code == 0, output
    return pl.read_parquet(command.campaign / "cells.parquet")


def test_every_cell_has_the_expected_verdict(cells: pl.DataFrame) -> None:
    # How steady a point is depends on what else the machine does.
    found = cells.select("cell", verdict=pl.col("verdict").replace("unstable", "passed")).sort("cell")
    wanted = EXPECTED.select("cell", "verdict").sort("cell")
    assert found.to_dicts() == wanted.to_dicts()


def test_what_is_unsupported_says_why(cells: pl.DataFrame) -> None:
    reasons = cells.filter(pl.col("verdict") == "unsupported")["reason"]
    assert reasons.str.len_chars().min() or reasons.is_empty()


def test_every_metric_is_within_its_bounds_and_a_blind_guess_is_not(cells: pl.DataFrame) -> None:
    for row in cells.filter(pl.col("verdict") != "unsupported").iter_rows(named=True):
        assert row["metric"], row["cell"]
        assert abs(row["metric_drop"]) < 0.1 * abs(row["framework_metric"]), row["cell"]
        assert abs(row["blind_metric"] - row["framework_metric"]) > 0.2 * abs(row["framework_metric"])


def test_half_precision_is_smaller_than_full_precision(cells: pl.DataFrame) -> None:
    pairs = (
        cells.filter(pl.col("artifact_bytes").is_not_null())
        .pivot("precision", index=["model", "format"], values="artifact_bytes")
        .drop_nulls()
    )
    assert pairs.height >= 6
    assert (pairs["fp16"] < 0.8 * pairs["fp32"]).all(), pairs
