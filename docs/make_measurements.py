"""Adds a campaign on a GPU to docs/measurements.parquet, the source of docs/make_gpu_results.py.

    python docs/make_measurements.py results/CAMPAIGN --machine h200-11 --command 'servegrid sweep ...'

A row is a measured point. It has all columns of the campaign's measurements.parquet, some of its cell's, and:
`label` (a short name of the campaign), `machine` (equal names mean the same machine), `date`, `commit` (it
recorded the rows), `setting` (cores, shared memory, protocol), `command` and `note`.
"""

from __future__ import annotations

import argparse
import subprocess
from pathlib import Path

import polars as pl

TABLE = Path(__file__).with_name("measurements.parquet")
OF_CELL = (
    *("verdict", "metric", "framework_metric", "served_metric"),
    *("largest_difference", "least_cosine", "invariance"),
)
"""Columns of the cell that each of its rows has, too."""


def rows(folder: Path, machine: str, command: str, commit: str, label: str, note: str) -> pl.DataFrame:
    """The measured points of a campaign's folder, with their conditions."""
    points = pl.read_parquet(folder / "measurements.parquet")
    cells = pl.read_parquet(folder / "cells.parquet").select("cell", "profile", *OF_CELL)
    if "cores_awake" not in points.columns:  # campaigns from before the option
        points = points.with_columns(cores_awake=pl.lit(value=False))
    points = points.with_columns(pl.col("cores_awake").fill_null(value=False))
    cores = pl.when("cores_awake").then(pl.lit("cores awake")).otherwise(pl.lit("cores at rest"))
    day = pl.col("campaign").str.head(8).str.to_date("%Y%m%d")
    conditions = {
        "label": pl.lit(label),
        "machine": pl.lit(machine),
        "date": day,
        "commit": pl.lit(commit),
        "setting": pl.format("{}, {} shared memory, {}", cores, "shared_memory", "protocol"),
        "command": pl.lit(command),
        "note": pl.lit(note),
    }
    joined = points.join(cells, on=["cell", "profile"], how="left", maintain_order="left")
    return joined.select(
        *(value.alias(name) for name, value in conditions.items()), *OF_CELL, *points.columns
    )


def append(found: pl.DataFrame, table: Path = TABLE) -> None:
    """Add the rows to the table.

    Raises:
        SystemExit: the table has the campaign already.
    """
    old = pl.read_parquet(table) if table.exists() else found.clear()
    if twice := set(old["campaign"]) & set(found["campaign"]):
        raise SystemExit(f"{table}: {', '.join(sorted(twice))} is in the table already")
    both = pl.concat([old, found], how="diagonal")
    assert both.height == old.height + found.height
    both.sort("campaign", maintain_order=True).write_parquet(table, compression="zstd")


def main() -> None:
    """Read the command line, and append."""
    git = ["git", "rev-parse", "--short", "HEAD"]
    head = subprocess.run(git, capture_output=True, text=True, check=True).stdout.strip()
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--machine", required=True)
    parser.add_argument("--command", required=True)
    parser.add_argument("--commit", default=head)
    parser.add_argument("--label", help="the folder's name, if not given")
    parser.add_argument("--note", default="")
    given = parser.parse_args()
    label = given.label or given.folder.resolve().name
    append(rows(given.folder, given.machine, given.command, given.commit, label, given.note))


if __name__ == "__main__":
    main()
