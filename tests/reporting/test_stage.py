"""The stage `report`: every form is written, and can be written again."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from tasks import report
from tasks.core.errors import UserError
from tasks.core.results import Writer

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
    folder = campaign(tmp_path / "c7", two)
    text = report.write(folder)
    assert report.write(folder) == text == (folder / "report.md").read_text()
    assert "campaign c7" in (folder / "report.html").read_text()
    assert pl.read_parquet(folder / "cells.parquet").equals(two[0])
    assert pl.read_parquet(folder / "measurements.parquet").equals(two[1])
    images = {p.name for p in (folder / "charts" / "toy").iterdir()}
    assert {
        "pareto-online.svg",
        "pareto-offline.png",
        "throughput-offline.svg",
        "breakdown-online.png",
    } <= images
    assert "a" in (folder / "charts" / "toy" / "breakdown-offline.svg").read_text()
    heights: dict[str, Any] = {s: pl.read_csv(folder / f"{s}.csv").height for s in ("offline", "online")}
    assert heights == {"offline": 3, "online": 3}


def test_report_of_a_campaign_that_is_not_there_is_refused(
    cells: Rows, empty: Frames, tmp_path: Path
) -> None:
    campaign(tmp_path / "c7", (cells({"cell": "a"}), empty[1]))
    with pytest.raises(UserError, match="no campaign there; the latest are: c7"):
        report.write(tmp_path / "c8")
    assert not (tmp_path / "c8").exists()


def test_report_tells_what_moved_since_the_campaign_before(two: Frames, tmp_path: Path) -> None:
    for name, factor in (("c1", 1.0), ("c2", 0.5)):
        points = two[1].with_columns(pl.col("throughput") * factor, campaign=pl.lit(name))
        campaign(tmp_path / name, (two[0].with_columns(campaign=pl.lit(name)), points))
    first, second = (report.write(tmp_path / name) for name in ("c1", "c2"))
    assert (
        "Moved beyond noise" not in first
        and "chart-trail" not in (tmp_path / "c1" / "report.html").read_text()
    )
    assert (
        "| a | offline, batch 8 x 1, inferences/s | 300.0 | 150.0 | -50.0% (noise 5.0%) | c1 | nothing that "
        "the rows tell |"
    ) in second
    page = (tmp_path / "c2" / "report.html").read_text()
    assert 'id="chart-trail-online"' in page and 'id="table-moves"' in page
    assert (tmp_path / "c2" / "charts" / "toy" / "trail-offline.svg").exists()
