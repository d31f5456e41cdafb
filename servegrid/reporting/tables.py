"""The rows of a campaign as the report shows them: one table of cells, one of points, one of parameters."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import polars as pl

from servegrid.campaign.columns import parse_json
from servegrid.domain.values import Value
from servegrid.reporting.columns import CELLS, FILTERS, MOVES, POINTS, PUBLISHED, TRAIL, Column, shown
from servegrid.reporting.history import Move, Past
from servegrid.reporting.published.compare import join_published
from servegrid.reporting.recommendation import OF_CELL

KIND = pl.concat_str(
    ["format", "precision", pl.when(pl.col("accelerator") != "none").then("accelerator")],
    separator=" ",
    ignore_nulls=True,
).alias("kind")
"""Format, precision and accelerator: one colour of the charts."""


LOAD = (
    pl.when(pl.col("request_rate").is_null())
    .then(pl.format("concurrency {}", "concurrency"))
    .otherwise(
        pl.format(
            "{} requests/s{}",
            pl.col("request_rate"),
            pl.when("slo_holds").then(pl.lit(", within the objective")).otherwise(pl.lit("")),
        )
    )
    .alias("load")
)
ENERGY = (1e3 * pl.col("power_w") / pl.col("throughput")).alias("energy_j_per_1000")
"""Joules for 1000 inferences: the card's average power in W over inferences/s; null if the power is not
known."""


class Table(Value):
    """A table of the page: its columns, their values and the filters', and the rows shown at first."""

    name: str
    columns: tuple[Column, ...]
    first: int = 100
    data: dict[str, dict[str, list[Any]] | list[Any]]


def cell_rows(cells: pl.DataFrame, measurements: pl.DataFrame) -> pl.DataFrame:
    """One row a cell; load time and first request come from its online points."""
    online = measurements.filter(pl.col("scenario") == "online")
    loading = online.unique(OF_CELL, keep="first").select(*OF_CELL, "load_s", "first_request_ms")
    found = cells.join(loading, on=OF_CELL, how="left", nulls_equal=True, maintain_order="left")
    return found.with_columns(KIND, pl.col("reason").map_elements(in_a_line, pl.String))


def in_a_line(reason: str) -> str:
    """The first and the last line of a reason: what failed, and the error at the end of its log."""
    lines = reason.strip().splitlines() or [""]
    return lines[0] if len(lines) == 1 else f"{lines[0]}: {lines[-1].strip()}"


def point_rows(measurements: pl.DataFrame) -> pl.DataFrame:
    """One row a measured point; `load` and `failed_checks` in words."""
    return measurements.with_columns(KIND, LOAD, ENERGY, pl.col("failed_checks").list.join(", "))


def tables(
    cells: pl.DataFrame,
    measurements: pl.DataFrame,
    published: dict[str, pl.DataFrame] | None = None,
    past: Past | None = None,
) -> dict[str, Table]:
    """Every table of the page by its name; `published` has the published figures by model."""
    of_cells, of_points = cell_rows(cells, measurements), point_rows(measurements)
    same, varying = parameters(cells)
    found = {
        "cells": _table("cells", of_cells, shown(of_cells.drop("kind"), CELLS)),
        "points": _table("points", of_points, shown(of_points.drop("kind"), POINTS)),
        "parameters": _table(
            "parameters",
            varying,
            [Column(name=name, title=name) for name in varying.columns if not name.startswith("filter ")],
        ),
        "same": _table("same", same, [Column(name=name, title=name) for name in same.columns]),
    }
    theirs = join_published(measurements, published or {})
    if theirs.height:
        found["published"] = _table("published", theirs, shown(theirs, PUBLISHED))
    if past and past.trail.height:
        found["trail"] = _table("trail", point_rows(past.trail), TRAIL)
    if past and past.moves:
        found["moves"] = _table("moves", _move_rows(past.moves, cells), MOVES, first=10)
    return found


def _move_rows(moves: Sequence[Move], cells: pl.DataFrame) -> pl.DataFrame:
    """One row a change, with the columns of the filters."""
    rows = [
        move.model_dump(include={"cell", "profile", "what", "before", "after"})
        | {"by": move.by, "changed_with_it": move.with_it, "to": move.campaigns[1]}
        for move in moves
    ]
    return pl.DataFrame(rows).join(cells.select(*OF_CELL, *FILTERS), on=OF_CELL, maintain_order="left")


def parameters(cells: pl.DataFrame) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Every setting and version: those that all cells share, and the others by cell."""
    rows = [dict(_flat(row)) for row in cells.select(*_PARAMETERS).iter_rows(named=True)]
    names = list(dict.fromkeys(name for row in rows for name in row))
    values = {name: {row.get(name, "") for row in rows} for name in names}
    same = [(name, *values[name]) for name in names if len(values[name]) == 1 and name != "cell"]
    varying = [name for name in names if len(values[name]) > 1 and name != "cell"]
    frame = pl.DataFrame(
        [{name: row.get(name, "") for name in ("cell", *varying)} for row in rows],
        schema=dict.fromkeys(("cell", *varying), pl.String),
    )
    return pl.DataFrame(
        same, schema={"parameter": pl.String, "value": pl.String}, orient="row"
    ), frame.with_columns(cells[name].alias(f"filter {name}") for name in FILTERS)


_JSON = ("parameters", "static", "dynamic", "offline", "online", "versions", "environment")
_PARAMETERS = (
    *("cell", "profile", "gpu", "cpu", "host", "model", "variant", "export_format", "export_precision"),
    *("format", "precision", "accelerator", "accelerator_precision", "opset", "torch_jit", "triton_release"),
    *("random_weights", "server", "server_version", "backend", "model_digest", "settings", *_JSON),
)


def _flat(row: dict[str, Any]) -> Iterable[tuple[str, str]]:
    """The parameters of a row; each field of a JSON column is one parameter."""
    for name, value in row.items():
        if name in _JSON:
            for key, inner in parse_json(value).items():
                yield f"{name}: {key}", _words(inner)
        else:
            yield name, _words(value)


def _words(value: object) -> str:
    if value is None or isinstance(value, bool):
        return {None: "-", True: "yes", False: "no"}[value]
    return " ".join(map(str, value)) if isinstance(value, list) else str(value)


def _table(name: str, frame: pl.DataFrame, columns: Sequence[Column], first: int = 100) -> Table:
    wanted = [*(column.name for column in columns), *FILTERS, *(f"filter {f}" for f in FILTERS)]
    wanted += [
        "kind",
        "load",
        "failed_checks",
        "verdict",
        "framework_metric",
        "served_metric",
        "load_s",
        "first_request_ms",
    ]
    kept = [column for column in dict.fromkeys(wanted) if column in frame.columns]
    data = {column: _packed(frame[column]) for column in kept}
    return Table(name=name, columns=tuple(columns), data=data, first=first)


def _packed(column: pl.Series) -> dict[str, list[Any]] | list[Any]:
    """Numbers with six significant digits; other values once, with their places."""
    if column.dtype.is_float():
        finite = column.set(column.is_infinite() | column.is_nan(), None)
        return finite.round_sig_figs(6).to_list()
    if column.dtype.is_integer():
        return column.to_list()
    values = column.unique(maintain_order=True).to_list()
    place = {value: number for number, value in enumerate(values)}
    return {"values": values, "places": [place[value] for value in column.to_list()]}
