"""The stage `report`: every form is written, and can be written again."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from servegrid.campaign.columns import fill_old_rows
from servegrid.campaign.results import Writer
from servegrid.domain.errors import UserError
from servegrid.reporting import writing

Rows = Callable[..., pl.DataFrame]
Frames = tuple[pl.DataFrame, pl.DataFrame]


def campaign(folder: Path, frames: tuple[pl.DataFrame, pl.DataFrame]) -> Path:
    writer = Writer(folder)
    for row in frames[0].iter_rows(named=True):
        writer.append("cell", row)
    for row in frames[1].iter_rows(named=True):
        writer.append("measurement", row)
    return folder


def test_report_is_written_in_every_form_and_can_be_written_again(two: Frames, tmp_path: Path) -> None:
    for name, factor in (("c6", 2.0), ("c7", 1.0)):  # the one before was twice as fast
        named = pl.lit(name).alias("campaign")
        points = two[1].with_columns(named, pl.col("throughput") * factor)
        folder = campaign(tmp_path / name, (two[0].with_columns(named), points))
    text = writing.write(folder)
    assert writing.write(folder) == text == (folder / "report.md").read_text()
    assert "| a | offline, batch 8 x 1, inferences/s | 600.0 | 300.0 | -50.0% (noise 5.0%) | c6 |" in text
    page = (folder / "report.html").read_text()
    assert "campaign c7" in page and 'id="chart-trail-online"' in page and 'id="table-moves"' in page
    assert pl.read_parquet(folder / "cells.parquet").drop("campaign").equals(two[0].drop("campaign"))
    assert pl.read_parquet(folder / "measurements.parquet").equals(fill_old_rows(points))
    images = folder / "charts" / "toy"
    for name in ("pareto-online.svg", "pareto-offline.png", "breakdown-online.png", "trail-offline.svg"):
        assert (images / name).stat().st_size > 1000
    assert "Where the time of a request goes, offline: a<" in (images / "breakdown-offline.svg").read_text()
    heights: dict[str, Any] = {s: pl.read_csv(folder / f"{s}.csv").height for s in ("offline", "online")}
    assert heights == {"offline": 3, "online": 3}


def test_report_of_an_unknown_campaign_is_refused(cells: Rows, empty: Frames, tmp_path: Path) -> None:
    campaign(tmp_path / "c7", (cells({"cell": "a"}), empty[1]))
    with pytest.raises(UserError, match=r"campaign.*'c8'.*'c7'"):
        writing.write(tmp_path / "c8")
    assert not (tmp_path / "c8").exists()
