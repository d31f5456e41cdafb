"""Stage `report`: a campaign's rows as parquet, CSV, Markdown, HTML and images. Can be run at any time."""

from __future__ import annotations

import re
from pathlib import Path

import polars as pl
from prefect import task
from prefect.artifacts import create_link_artifact, create_markdown_artifact, create_table_artifact
from prefect.cache_policies import NO_CACHE

from servegrid.campaign import results
from servegrid.campaign.layout import CampaignLayout
from servegrid.campaign.options_file import objective
from servegrid.reporting.markdown import summary
from servegrid.reporting.writing import write


@task(task_run_name="report {folder.name}", cache_policy=NO_CACHE)
def report(folder: Path) -> None:
    """Write the report, and show its summary in the Prefect UI."""
    write(folder)
    text = summary(folder.name, *results.read(folder), objective(folder))
    create_markdown_artifact(text, key="report", description=f"campaign {folder.name}")
    create_link_artifact(
        CampaignLayout(folder=folder).report.absolute().as_uri(), link_text="report.html", key="report-html"
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
        CampaignLayout(folder=folder).report.absolute().as_uri(), link_text="report.html", key=f"report-{key}"
    )
