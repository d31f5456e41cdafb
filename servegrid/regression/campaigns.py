"""What campaigns left behind, read as the two sides of a comparison.

A side is a campaign, or a folder of several campaigns of the same cells: its repeats. From repeats an
interval holds what varies between runs. From one run there are only the windows of its points.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import polars as pl

from servegrid.campaign import results
from servegrid.campaign.campaign import unreached
from servegrid.campaign.columns import POINT_KEY, point_in_words
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
)
"""Rows that differ in one of these measure different things: refused, unless asked for."""
CONDITIONS = ("host", "triton_release", "server", "server_version", "generator_version")
"""What may change between two runs and explain a difference: told, as are versions and the environment."""
OF_REPEATS = ("throughput", "p50_ms", "p99_ms")
OF_WINDOWS = {"throughput": "windows_throughput", "avg_ms": "windows_avg_ms"}


class Rule(Value):
    """How sure a regression must be, and how large; without `relevant` it depends on the repeats."""

    confidence: float = CONFIDENCE
    relevant: float | None = None
    across: bool = False


class Side:
    """The rows of one side."""

    def __init__(self, name: str, cells: pl.DataFrame, measurements: pl.DataFrame) -> None:
        self.name, self.measurements = name, measurements
        self.cells = cells.filter(pl.col("verdict") != "skipped")

    @property
    def profiles(self) -> int:
        return self.cells["profile"].n_unique()

    def by_profile(self) -> Side:
        """The same with the profile in each cell's name."""
        name = pl.format("{} on {}", "cell", pl.col("profile").fill_null("?")).alias("cell")
        return Side(self.name, self.cells.with_columns(name), self.measurements.with_columns(name))

    @property
    def runs(self) -> int:
        return self.cells["campaign"].n_unique()

    def points(self, cell: str) -> dict[tuple[Any, ...], list[Row]]:
        """Point -> the rows of its repeats."""
        found: dict[tuple[Any, ...], list[Row]] = {}
        for row in self.measurements.filter(pl.col("cell") == cell).iter_rows(named=True):
            found.setdefault(tuple(row[name] for name in POINT_KEY), []).append(row)
        return found


def read_side(given: str, results_folder: Path) -> Side:
    """A campaign by its name or folder, or a folder of campaigns.

    Raises:
        UserError: there are no rows, or a campaign has cells left to run.
    """
    folder = Path(given) if Path(given).is_dir() else results.campaign_folder(results_folder, given)
    folders = [folder] if _has_rows(folder) else sorted(f for f in folder.glob("*") if _has_rows(f))
    if not folders:
        results.read(folder)  # says which campaigns there are
    for interrupted in folders:
        if left := unreached(interrupted):
            cell, profile = left[0]
            raise UserError(
                f"campaign {interrupted.name}: {len(left)} cells have not run, first {cell} on {profile}; "
                f"`servegrid sweep --resume {interrupted.name}` goes on with it"
            )
    tables = [_read(f) for f in folders]
    cells, measurements = (pl.concat(kind) for kind in zip(*tables, strict=True))
    return Side(folder.name, cells, measurements)


def compare(a: Side, b: Side, rule: Rule) -> Comparison:
    """Every cell of both sides, on each profile where a side has several.

    Raises:
        UserError: they have no cell in common, measured different things, or nothing that can be compared.
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
    name: str, a: Side, b: Side, confidence: float, relevant: float, repeated: bool
) -> CellComparison:
    verdicts = [set(side.cells.filter(pl.col("cell") == name)["verdict"]) for side in (a, b)]
    if not all(verdicts):
        return CellComparison(cell=name, only_in="A" if verdicts[0] else "B")
    broken = ""
    if verdicts[0] <= set(WHOLE) and not verdicts[1] <= set(WHOLE):
        broken = f"{', '.join(sorted(verdicts[0]))} in A, {', '.join(sorted(verdicts[1]))} in B"
    points = [side.points(name) for side in (a, b)]
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
            sides = [tuple(r[metric] for r in side if r[metric] is not None) for side in (a, b)]
            if all(sides):
                yield Figures(point=point, metric=metric, a=sides[0], b=sides[1])
        return
    for metric, column in OF_WINDOWS.items():
        sides = [tuple((side[0][column] or [])[-STABLE_WINDOWS:]) for side in (a, b)]
        if all(sides):
            yield Figures(point=point, metric=metric, a=sides[0], b=sides[1])


def _differing(a: list[Row], b: list[Row]) -> Iterator[str]:
    for column in SETTINGS:
        sides = [sorted({json.dumps(row[column]) for row in side}) for side in (a, b)]
        if sides[0] != sides[1]:
            yield f"{column}: {', '.join(sides[0])} in A, {', '.join(sides[1])} in B"


def _conditions(a: Side, b: Side) -> Iterator[str]:
    for column in CONDITIONS:
        sides = [sorted(set(side.measurements[column].drop_nulls())) for side in (a, b)]
        if sides[0] != sides[1]:
            yield f"{column}: {', '.join(sides[0])} -> {', '.join(sides[1])}"
    for column in ("environment", "versions"):
        merged: list[dict[str, Any]] = [{}, {}]
        for facts, side in zip(merged, (a, b), strict=True):
            for text in side.cells[column].drop_nulls():
                facts |= json.loads(text)
        for name in sorted(merged[0].keys() & merged[1].keys() - {"name", "cpu", "gpu"}):
            if merged[0][name] != merged[1][name]:
                yield f"{name}: {merged[0][name]} -> {merged[1][name]}"


def _has_rows(folder: Path) -> bool:
    return (folder / "rows.jsonl").is_file() or (folder / "measurements.parquet").is_file()


def _read(folder: Path) -> tuple[pl.DataFrame, pl.DataFrame]:
    """The tables of a campaign; of one that was copied without its rows, from their parquet files."""
    if (folder / "rows.jsonl").is_file():
        return results.read(folder)
    return (
        read_parquet(folder / "cells.parquet", CELLS),
        read_parquet(folder / "measurements.parquet", MEASUREMENTS),
    )
