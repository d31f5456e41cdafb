"""The tables of campaigns as parquet files: reading back what a report wrote."""

from __future__ import annotations

import logging
from pathlib import Path

import polars as pl

from servegrid.campaign import layout
from servegrid.campaign.columns import RENAMED, fill_old_rows
from servegrid.campaign.results import CELLS, WHOLE
from servegrid.domain.errors import UserError

log = logging.getLogger("servegrid")


def read_parquet(path: Path, schema: dict[str, pl.DataType]) -> pl.DataFrame:
    """A table with the columns of now: those that an older campaign did not have are null, or
    filled as `fill_old_rows` does.

    Raises:
        UserError: it is no such table.
    """
    try:
        table = pl.read_parquet(path).rename(RENAMED, strict=False)
        return fill_old_rows(
            table.select(
                (pl.col(name) if name in table.columns else pl.lit(None).alias(name)).cast(kind)
                for name, kind in schema.items()
            )
        )
    except (OSError, pl.exceptions.PolarsError) as error:
        reason = " ".join(str(error).split())[:200]
        raise UserError(f"{path}: no table of a campaign ({reason}); `servegrid report` makes it") from error


def last_wall_s(results: Path) -> dict[tuple[str, str, bool], float]:
    """(cell, profile, random weights) -> how long its last run took, in s, over all campaigns; a run that was
    cut short does not count.

    The last is the one that began last; runs that did not write that down count before all others, by the
    names of their campaigns, which sort by time. (A file's own time is that of the last report.)
    """
    runs = []
    for path in results.glob(f"*/{layout.CELLS}"):
        try:
            cells = read_parquet(path, CELLS).filter(pl.col("verdict").is_in(WHOLE))
        except UserError as error:  # a plan works without its times
            log.warning("%s", error)
            continue
        runs += [((row["started_at"] or "", path.parent.name), row) for row in cells.iter_rows(named=True)]
    ordered = sorted(runs, key=lambda run: run[0])
    return {(row["cell"], row["profile"], row["random_weights"]): row["wall_s"] for _, row in ordered}
