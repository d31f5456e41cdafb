"""`accuracy.csv`: every metric of every cell, of framework, converted, served and shuffled answers."""

from __future__ import annotations

import json
from pathlib import Path

import polars as pl

from servegrid.campaign.layout import CampaignLayout
from servegrid.domain.errors import UserError

ANSWERS = ("framework", "converted", "served", "shuffled")
SCHEMA = {
    **dict.fromkeys(("cell", "profile", "verdict", "metric"), pl.String()),
    **dict.fromkeys(ANSWERS, pl.Float64()),
}


def table(layout: CampaignLayout, cells: pl.DataFrame) -> pl.DataFrame:
    """A row for each metric that a cell's metrics.py gives; null where there were no such answers.

    Raises:
        UserError: a file of metrics is damaged.
    """
    found = []
    for cell in cells.select("cell", "profile", "verdict").iter_rows(named=True):
        path = layout.written(cell["profile"], cell["cell"]).predictions(cell["cell"]) / "metrics.json"
        if path.is_file():
            metrics = _read(path)
            names = dict.fromkeys(name for answers in metrics.values() for name in answers)
            found += [
                cell | {"metric": name} | {kind: answers.get(name) for kind, answers in metrics.items()}
                for name in names
            ]
    return pl.DataFrame(found, schema=SCHEMA)


def _read(path: Path) -> dict[str, dict[str, float]]:
    try:
        metrics: dict[str, dict[str, float]] = json.loads(path.read_text(encoding="utf-8"))
        return {kind: dict(metrics[kind]) for kind in ANSWERS if kind in metrics}
    except (ValueError, TypeError) as error:
        raise UserError(f"{path}: cannot be read as metrics: {error}") from error
