"""A campaign's rows as parquet, CSV, Markdown, HTML and images."""

from __future__ import annotations

import io
from collections.abc import Callable
from pathlib import Path
from typing import IO

import polars as pl

from servegrid.campaign import results
from servegrid.campaign.layout import CampaignLayout
from servegrid.campaign.options_file import objective
from servegrid.domain.errors import UserError
from servegrid.domain.slo import Slo
from servegrid.host.files import write_atomic
from servegrid.reporting import accuracy
from servegrid.reporting.charts import of_campaign
from servegrid.reporting.history import past
from servegrid.reporting.html import page
from servegrid.reporting.images import write_images
from servegrid.reporting.markdown import document
from servegrid.reporting.published import table as published_table
from servegrid.reporting.published.compare import join_published
from servegrid.reporting.published.document import render
from servegrid.reporting.published.form import in_published_form
from servegrid.reporting.tables import tables
from servegrid.store.site import default_site


def write(folder: Path, slo: Slo | None = None) -> str:
    """Write every form of the report into the campaign's folder, by default for its own latency objective;
    returns the Markdown.

    Raises:
        UserError: there is no such campaign.
    """
    layout = CampaignLayout(folder=folder)
    cells, measurements = results.read(folder)
    slo = slo or objective(folder)
    models = cells["model"].unique(maintain_order=True).to_list()
    theirs = published_table.read(default_site().models, models)
    write_atomic(layout.cells, _bytes(cells.write_parquet))
    write_atomic(layout.measurements, _bytes(measurements.write_parquet))
    for scenario in ("offline", "online"):
        table = results.published_columns(measurements, scenario)
        write_atomic(layout.published_columns(scenario), _bytes(table.write_csv))
    write_atomic(layout.accuracy, _bytes(accuracy.table(layout, cells).write_csv))
    before = past(folder, (cells, measurements))
    moved = [move for move in before.moves if move.campaigns[1] in cells["campaign"]]
    text = document(folder.name, cells, measurements, slo, join_published(measurements, theirs), moved)
    write_atomic(layout.markdown, text)
    shown = tables(cells, measurements, theirs, before)
    drawings = of_campaign(shown)
    write_atomic(layout.report, page(folder.name, cells, measurements, shown, drawings, slo))
    write_images(layout.charts, cells, measurements, drawings, before.trail)
    return text


def write_like_published(folder: Path) -> Path:
    """Write the campaign's points as sections in the published form of each model: published.md.

    Raises:
        UserError: there is no such campaign, or nothing was published of its models.
    """
    cells, measurements = results.read(folder)
    theirs = published_table.read(default_site().models, cells["model"].unique(maintain_order=True).to_list())
    parts = []
    for model, table in theirs.items():
        of_model = measurements.filter(pl.col("model") == model)
        if of_model.height:
            parts += [f"# {model}", render(in_published_form(cells, of_model, table))]
    if not parts:
        raise UserError(f"{folder.name}: no point of a model that has a published.csv below models/")
    path = CampaignLayout(folder=folder).published
    write_atomic(path, "\n\n".join(parts))
    return path


def _bytes(write: Callable[[IO[bytes]], None]) -> bytes:
    """What `write` writes. Polars hides the error of a full disk, so the bytes are written here."""
    file = io.BytesIO()
    write(file)
    return file.getvalue()
