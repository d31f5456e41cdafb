"""Stage `report`: a campaign's rows as parquet, CSV, Markdown and HTML. Can be run at any time."""

from __future__ import annotations

from pathlib import Path

from prefect import task
from prefect.artifacts import create_link_artifact, create_markdown_artifact
from prefect.cache_policies import NO_CACHE

from tasks.core import results
from tasks.core.store import write_atomic
from tasks.reporting.html import page
from tasks.reporting.markdown import document


def write(folder: Path) -> str:
    """Write every form of the report into the campaign's folder; returns the Markdown.

    Raises:
        UserError: there is no such campaign.
    """
    cells, measurements = results.read(folder)
    cells.write_parquet(folder / "cells.parquet")
    measurements.write_parquet(folder / "measurements.parquet")
    for scenario in ("offline", "online"):
        results.published_columns(measurements, scenario).write_csv(folder / f"{scenario}.csv")
    text = document(folder.name, cells, measurements)
    write_atomic(folder / "report.md", text)
    write_atomic(folder / "report.html", page(folder.name, cells, measurements))
    return text


@task(task_run_name="report {folder.name}", cache_policy=NO_CACHE)
def report(folder: Path) -> None:
    """Write the report, and show its summary in the Prefect UI."""
    text = write(folder)
    create_markdown_artifact(text, key="report", description=f"campaign {folder.name}")
    create_link_artifact(
        (folder / "report.html").absolute().as_uri(), link_text="report.html", key="report-html"
    )
