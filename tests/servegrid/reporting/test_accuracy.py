"""accuracy.csv: every metric of every cell, from the files that the cells left."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import polars as pl
import pytest

from servegrid.campaign.layout import CampaignLayout
from servegrid.domain.errors import UserError
from servegrid.reporting.accuracy import ANSWERS, table


def metrics(layout: CampaignLayout, cell: str, text: str) -> None:
    folder = layout.profile("cpu").predictions(cell)
    folder.mkdir(parents=True)
    (folder / "metrics.json").write_text(text)
    layout.profile("cpu").logs.mkdir(exist_ok=True)
    (layout.profile("cpu").logs / f"{cell}.score.log").touch()


def test_every_metric_of_every_cell_is_a_row(tmp_path: Path, cells: Callable[..., pl.DataFrame]) -> None:
    layout = CampaignLayout(folder=tmp_path)
    whole = {kind: {"f1": 0.9 - i / 10, "exact": 0.5} for i, kind in enumerate(ANSWERS)}
    metrics(layout, "a", json.dumps(whole))
    metrics(layout, "b", json.dumps({kind: {"f1": 0.25} for kind in ("framework", "served")}))
    rows = cells({"cell": "a"}, {"cell": "b", "verdict": "failed_accuracy"}, {"cell": "without"})
    found = table(layout, rows)
    assert found.select("cell", "profile", "verdict", "metric", *ANSWERS).rows() == [
        ("a", "cpu", "passed", "f1", 0.9, 0.8, 0.7, pytest.approx(0.6)),
        ("a", "cpu", "passed", "exact", 0.5, 0.5, 0.5, 0.5),
        ("b", "cpu", "failed_accuracy", "f1", 0.25, None, 0.25, None),
    ]


@pytest.mark.parametrize("text", ["", '{"framework": 3}', "{"])
def test_a_damaged_file_is_named(tmp_path: Path, cells: Callable[..., pl.DataFrame], text: str) -> None:
    layout = CampaignLayout(folder=tmp_path)
    metrics(layout, "a", text)
    with pytest.raises(UserError, match=r"metrics\.json"):
        table(layout, cells({"cell": "a"}))
