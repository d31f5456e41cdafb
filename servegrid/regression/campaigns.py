"""Compares the rows of two campaigns, A and B.

Each may also be a folder of repeats: several campaigns of the same cells. Intervals from repeats include the
variation between runs; a single campaign has only the windows of its points.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import polars as pl

from servegrid.campaign import results
from servegrid.campaign.campaign import unreached
from servegrid.campaign.columns import POINT_KEY, REMOVED, point_in_words
from servegrid.campaign.layout import CampaignLayout
from servegrid.campaign.results import CELLS, MEASUREMENTS, WHOLE, Row
from servegrid.campaign.tables import read_parquet
from servegrid.domain.errors import UserError
from servegrid.domain.values import LoadPlan, Product, Serving, Value
from servegrid.loadgen.base import STABLE_WINDOWS
from servegrid.regression.verdict import (
    CONFIDENCE,
    RELEVANT,
    RELEVANT_SINGLE,
    CellComparison,
    Comparison,
    Figures,
    judge,
)

SETTINGS = (
    "gpu",
    "cpu",
    "profile",
    *(name for name in Product.model_fields if name != "triton_release"),
    *Serving.model_fields,
    *(
        name
        for name in LoadPlan.model_fields
        if name in MEASUREMENTS and name not in ("scenario", "request_count")
    ),
    "minimum_request_count",  # the plan's; `request_count` is how many there were
    *REMOVED,
)
"""Rows that differ in one of these measure different things: not compared without --across."""
CONDITIONS = ("host", "triton_release", "server", "server_version", "generator_version")
"""May change between two runs and explain a difference: reported, like versions and environment."""
OF_REPEATS = ("throughput", "p50_ms", "p99_ms")
OF_WINDOWS = {"throughput": "windows_throughput", "avg_ms": "windows_avg_ms"}


class Rule(Value):
    """Confidence level and smallest relevant change of a regression; None: it depends on the repeats."""

    confidence: float = CONFIDENCE
    relevant: float | None = None
    across: bool = False


class Repeats:
    """The rows of a campaign, or of several campaigns of the same cells."""

    def __init__(self, name: str, cells: pl.DataFrame, measurements: pl.DataFrame) -> None:
        self.name, self.measurements = name, measurements
        self.cells = cells.filter(pl.col("verdict") != "skipped")

    @property
    def profiles(self) -> int:
        return self.cells["profile"].n_unique()

    def by_profile(self) -> Repeats:
        """The same with the profile in each cell's name."""
        name = pl.format("{} on {}", "cell", pl.col("profile").fill_null("?")).alias("cell")
        return Repeats(self.name, self.cells.with_columns(name), self.measurements.with_columns(name))

    @property
    def runs(self) -> int:
        return self.cells["campaign"].n_unique()

    def points(self, cell: str) -> dict[tuple[Any, ...], list[Row]]:
        """Point -> its row in each campaign."""
        found: dict[tuple[Any, ...], list[Row]] = {}
        for row in self.measurements.filter(pl.col("cell") == cell).iter_rows(named=True):
            found.setdefault(tuple(row[name] for name in POINT_KEY), []).append(row)
        return found


def read_repeats(given: str, results_folder: Path) -> Repeats:
    """A campaign by its name or folder, or a folder of campaigns.

    Raises:
        UserError: no campaign there has rows, or a campaign has cells that have not run.
    """
    folder = Path(given) if Path(given).is_dir() else results.campaign_folder(results_folder, given)
    folders = [folder] if _has_rows(folder) else sorted(f for f in folder.glob("*") if _has_rows(f))
    if not folders:
        results.read(folder)  # raises UserError with the names of the campaigns
    for interrupted in folders:
        if left := unreached(interrupted):
            cell, profile = left[0]
            raise UserError(
                f"campaign {interrupted.name}: {len(left)} cells have not run, first {cell} on {profile}; "
                f"`servegrid sweep --resume {interrupted.name}` goes on with it"
            )
    tables = [_read(f) for f in folders]
    cells, measurements = (pl.concat(kind) for kind in zip(*tables, strict=True))
    return Repeats(folder.name, cells, measurements)


def compare(a: Repeats, b: Repeats, rule: Rule) -> Comparison:
    """Compare every cell of A and B, on each profile if one of them has several.

    Raises:
        UserError: A and B have no cell in common, measured different things, or nothing can be compared.
    """
    if max(a.profiles, b.profiles) > 1:
        a, b = a.by_profile(), b.by_profile()
    shared = set(a.cells["cell"]) & set(b.cells["cell"])
    if not shared:
        raise UserError(f"{a.name} and {b.name} have no cell in common")
    repeated = min(a.runs, b.runs) > 1
    if not repeated and max(a.runs, b.runs) > 1:
        raise UserError(f"{a.name} has {a.runs} run(s), {b.name} {b.runs}: give one or at least two of each")
    relevant = rule.relevant
    if relevant is None:
        relevant = RELEVANT if repeated else RELEVANT_SINGLE
    names = list(dict.fromkeys([*a.cells["cell"], *b.cells["cell"]]))
    cells = [_compare_cell(name, a, b, rule.confidence, relevant, repeated) for name in names]
    if not any(cell.judged or cell.broken for cell in cells):
        raise UserError(
            f"{a.name} and {b.name} have no measured point in common: there is nothing to compare"
        )
    differences = sorted({d for cell in cells for d in cell.differences})
    if differences and not rule.across:
        listed = "\n".join(f"  {entry}" for entry in differences)
        raise UserError(
            f"{a.name} and {b.name} measured different things; --across compares them all the same:\n{listed}"
        )
    unit = f"{a.runs} and {b.runs} runs" if repeated else "the last three windows of one run each"
    return Comparison(
        a=a.name,
        b=b.name,
        method=f"Welch's t intervals of logarithms, {rule.confidence:.0%} for all of a cell together, from "
        f"{unit}; a regression lies wholly beyond {relevant:.0%}",
        conditions=tuple(_conditions(a, b)),
        cells=tuple(cells),
    )


def _compare_cell(
    name: str, a: Repeats, b: Repeats, confidence: float, relevant: float, repeated: bool
) -> CellComparison:
    verdicts = [set(runs.cells.filter(pl.col("cell") == name)["verdict"]) for runs in (a, b)]
    if not all(verdicts):
        return CellComparison(cell=name, only_in="A" if verdicts[0] else "B")
    broken = ""
    if verdicts[0] <= set(WHOLE) and not verdicts[1] <= set(WHOLE):
        broken = f"{', '.join(sorted(verdicts[0]))} in A, {', '.join(sorted(verdicts[1]))} in B"
    points = [runs.points(name) for runs in (a, b)]
    both = [key for key in points[0] if key in points[1]]
    rows = [(points[0][key], points[1][key]) for key in both]
    return CellComparison(
        cell=name,
        judged=judge([f for pair in rows for f in _figures(*pair, repeated)], confidence, relevant),
        differences=tuple(dict.fromkeys(d for pair in rows for d in _differing(*pair))),
        broken=broken,
    )


def _figures(a: list[Row], b: list[Row], repeated: bool) -> Iterator[Figures]:
    point = point_in_words(a[0])
    if repeated:
        for metric in OF_REPEATS:
            values = [tuple(row[metric] for row in rows if row[metric] is not None) for rows in (a, b)]
            if all(values):
                yield Figures(point=point, metric=metric, a=values[0], b=values[1])
        return
    for metric, column in OF_WINDOWS.items():
        values = [tuple((rows[0][column] or [])[-STABLE_WINDOWS:]) for rows in (a, b)]
        if all(values):
            yield Figures(point=point, metric=metric, a=values[0], b=values[1])


def _differing(a: list[Row], b: list[Row]) -> Iterator[str]:
    for column in SETTINGS:
        values = [sorted({json.dumps(row[column]) for row in rows}) for rows in (a, b)]
        if values[0] != values[1]:
            yield f"{column}: {', '.join(values[0])} in A, {', '.join(values[1])} in B"


def _conditions(a: Repeats, b: Repeats) -> Iterator[str]:
    for column in CONDITIONS:
        values = [sorted(set(runs.measurements[column].drop_nulls())) for runs in (a, b)]
        if values[0] != values[1]:
            yield f"{column}: {', '.join(values[0])} -> {', '.join(values[1])}"
    for column in ("environment", "versions"):
        merged: list[dict[str, Any]] = [{}, {}]
        for facts, runs in zip(merged, (a, b), strict=True):
            for text in runs.cells[column].drop_nulls():
                facts |= json.loads(text)
        for name in sorted(merged[0].keys() & merged[1].keys() - {"name", "cpu", "gpu"}):
            if merged[0][name] != merged[1][name]:
                yield f"{name}: {merged[0][name]} -> {merged[1][name]}"


def _has_rows(folder: Path) -> bool:
    layout = CampaignLayout(folder=folder)
    return layout.rows.is_file() or layout.measurements.is_file()


def _read(folder: Path) -> tuple[pl.DataFrame, pl.DataFrame]:
    """The tables of a campaign; from its parquet files where it was copied without its rows."""
    layout = CampaignLayout(folder=folder)
    if layout.rows.is_file():
        return results.read(folder)
    return read_parquet(layout.cells, CELLS), read_parquet(layout.measurements, MEASUREMENTS)
