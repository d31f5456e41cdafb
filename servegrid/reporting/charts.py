"""The charts of the report as Vega-Lite specifications with named data, for the page and for the images."""

from __future__ import annotations

import functools
from typing import Any

from servegrid.domain.values import Value
from servegrid.reporting import chart_shapes as shapes
from servegrid.reporting.columns import CELLS, POINTS, Column
from servegrid.reporting.tables import Table

BY = {"online": "concurrency", "offline": "batch"}
"""The load that a scenario varies."""
CONFIG: dict[str, Any] = {
    "font": "system-ui, -apple-system, Segoe UI, Roboto, sans-serif",
    "view": {"stroke": None},
    "axis": {
        "gridColor": "#e8ebf0",
        "domainColor": "#9aa3b2",
        "tickColor": "#9aa3b2",
        "labelColor": shapes.TEXT,
        "labelFontSize": 12,
        "titleFontSize": 12,
    },
    "axisX": {"titleFontWeight": 500},
    "axisY": {"titleFontWeight": 500},
    "text": {"fontSize": 12},
    "legend": {"labelColor": shapes.TEXT, "labelFontSize": 12, "labelLimit": 260, "symbolStrokeWidth": 0},
}


class Drawing(Value):
    """One chart of the column `y` of the table `rows`: of one scenario's points, or (`one_cell`) of the cell
    that the reader picked."""

    name: str
    title: str
    y: str
    rows: str
    spec: dict[str, Any]
    scenario: str | None = None
    one_cell: bool = False


def of_campaign(tables: dict[str, Table]) -> tuple[Drawing, ...]:
    """The charts of the measured columns, and one for each measured number that no list of columns names."""
    measured = {name: {column.name for column in table.columns} for name, table in tables.items()}
    known = {column.name for column in (*CELLS, *POINTS)}
    extras = [
        _extra(name, column)
        for name in ("points", "cells")
        for column in tables[name].columns
        if column.digits is not None and column.name not in known
    ]
    drawn = (d for d in (*_drawings(), *extras) if d.y in measured.get(d.rows, ()))
    return tuple(d for d in drawn if d.scenario is None or d.scenario in _scenarios(tables[d.rows]))


def _scenarios(table: Table) -> list[Any]:
    packed = table.data.get("scenario", {"values": []})
    assert isinstance(packed, dict)
    return packed["values"]


@functools.cache
def _drawings() -> tuple[Drawing, ...]:
    return (
        *(drawing for scenario in BY for drawing in _of_scenario(scenario)),
        _drawing(
            "accuracy", "Accuracy, framework and served", "served_metric", shapes.accuracy(), rows="cells"
        ),
        _drawing("load", "Load time", "load_s", shapes.bars("load_s", "s"), rows="cells"),
        _drawing(
            "first-request",
            "First request",
            "first_request_ms",
            shapes.bars("first_request_ms", "ms"),
            rows="cells",
        ),
    )


def _of_scenario(scenario: str) -> tuple[Drawing, ...]:
    by = BY[scenario]
    share, energy = "share_of_limit", "energy_j_per_1000"
    of_points = (
        ("pareto", "Throughput against latency", "throughput", shapes.pareto(by)),
        ("breakdown", "Where the time of a request goes", "avg_ms", shapes.breakdown(by)),
        ("throughput", f"Throughput by {by}", "throughput", shapes.by_load(by)),
        ("share", "Share of the limit", share, shapes.by_load(by, share, "share of the limit")),
        ("energy", "Energy", energy, shapes.by_load(by, energy, "J per 1000 inferences")),
    )
    trail = _drawing(
        f"trail-{scenario}",
        f"Throughput from campaign to campaign, {scenario}",
        "change",
        shapes.trail(),
        rows="trail",
        scenario=scenario,
    )
    return (
        *(
            _drawing(f"{name}-{scenario}", f"{title}, {scenario}", y, chart, scenario=scenario)
            for name, title, y, chart in of_points
        ),
        trail,
    )


def _extra(rows: str, column: Column) -> Drawing:
    chart = (
        shapes.bars(column.name, column.title)
        if rows == "cells"
        else shapes.by_load("concurrency", column.name, column.title)
    )
    return _drawing(column.name.replace("_", "-"), column.title, column.name, chart, rows=rows)


def _drawing(
    name: str, title: str, y: str, chart: Any, *, rows: str = "points", scenario: str | None = None
) -> Drawing:
    spec = chart.properties(width="container").configure(**CONFIG).to_dict()
    one_cell = name.startswith("breakdown")
    return Drawing(name=name, title=title, y=y, rows=rows, spec=spec, scenario=scenario, one_cell=one_cell)
