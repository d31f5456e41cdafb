"""Stage `report`: a campaign's rows as parquet, CSV, Markdown, HTML and images. Can be run at any time."""

from __future__ import annotations

import io
import re
from collections.abc import Callable
from pathlib import Path
from typing import IO

import polars as pl
from prefect import task
from prefect.artifacts import create_link_artifact, create_markdown_artifact, create_table_artifact
from prefect.cache_policies import NO_CACHE

from tasks.core import results
from tasks.core.asked import objective
from tasks.core.errors import UserError
from tasks.core.files import write_atomic
from tasks.core.site import default_site
from tasks.core.slo import Slo
from tasks.reporting import published_table
from tasks.reporting.beside import beside
from tasks.reporting.charts import of_campaign
from tasks.reporting.history import past
from tasks.reporting.html import page
from tasks.reporting.images import write_images
from tasks.reporting.markdown import document, summary
from tasks.reporting.published_document import render
from tasks.reporting.published_form import in_published_form
from tasks.reporting.tables import tables


def write(folder: Path, slo: Slo | None = None) -> str:
    """Write every form of the report into the campaign's folder, for its own objective or for another that is
    given; returns the Markdown.

    Raises:
        UserError: there is no such campaign.
    """
    cells, measurements = results.read(folder)
    slo = slo or objective(folder)
    models = cells["model"].unique(maintain_order=True).to_list()
    theirs = published_table.read(default_site().models, models)
    write_atomic(folder / "cells.parquet", _bytes(cells.write_parquet))
    write_atomic(folder / "measurements.parquet", _bytes(measurements.write_parquet))
    for scenario in ("offline", "online"):
        table = results.published_columns(measurements, scenario)
        write_atomic(folder / f"{scenario}.csv", _bytes(table.write_csv))
    before = past(folder, (cells, measurements))
    moved = [move for move in before.moves if move.campaigns[1] in cells["campaign"]]
    text = document(folder.name, cells, measurements, slo, beside(measurements, theirs), moved)
    write_atomic(folder / "report.md", text)
    shown = tables(cells, measurements, theirs, before)
    drawings = of_campaign(shown)
    write_atomic(folder / "report.html", page(folder.name, cells, measurements, shown, drawings, slo))
    write_images(folder / "charts", cells, measurements, drawings, before.trail)
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
    write_atomic(folder / "published.md", "\n\n".join(parts))
    return folder / "published.md"


@task(task_run_name="report {folder.name}", cache_policy=NO_CACHE)
def report(folder: Path) -> None:
    """Write the report, and show its summary in the Prefect UI."""
    write(folder)
    text = summary(folder.name, *results.read(folder), objective(folder))
    create_markdown_artifact(text, key="report", description=f"campaign {folder.name}")
    create_link_artifact(
        (folder / "report.html").absolute().as_uri(), link_text="report.html", key="report-html"
    )


def summarize(folder: Path, profile: str, run: str) -> None:
    """The cells of one `qualify` run as a table in the Prefect UI, and a link to the campaign's report."""
    cells, measurements = results.read(folder)
    best = [
        pl.col("throughput").filter(pl.col("scenario") == name).max().alias(f"best {name} inferences/s")
        for name in ("offline", "online")
    ]
    table = (
        cells.filter(pl.col("flow_run") == run)
        .select("cell", "profile", "verdict", "reason")
        .join(measurements.group_by("cell", "profile").agg(best), on=["cell", "profile"], how="left")
    )
    key = re.sub("[^a-z0-9]+", "-", profile.lower())
    create_table_artifact(table.to_dicts(), key=f"cells-{key}", description=f"campaign {folder.name}")
    create_link_artifact(
        (folder / "report.html").absolute().as_uri(), link_text="report.html", key=f"report-{key}"
    )


def _bytes(write: Callable[[IO[bytes]], None]) -> bytes:
    """What it would write to a file. Polars does not tell a full disk by its name."""
    file = io.BytesIO()
    write(file)
    return file.getvalue()
