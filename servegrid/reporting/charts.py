"""The charts of the report, as Vega-Lite that takes its rows by name: for the page and for the images."""

from __future__ import annotations

import functools
from typing import Any

import altair as alt
from altair import datum

from servegrid.domain.values import Value
from servegrid.loadgen.latency import COMPONENTS
from servegrid.reporting.columns import CELLS, POINTS, Column
from servegrid.reporting.tables import Table

COLOURS = ["#b8c4d6", "#7d93b2", "#f2a541", "#9bd1b5", "#1b7f5c", "#55b08a", "#d8dee8"]
"""Of the latency's components, in their order."""
KINDS = ["#0b6bcb", "#d1495b", "#2e933c", "#8a4fbe", "#e07a1f", "#12857f", "#b5557d", "#6b6e76", "#a38a00"]
IN_COLUMNS: dict[str, Any] = {"orient": "top", "columns": {"expr": "width < 400 ? 1 : 3"}}
"""A legend that a phone does not cut."""
KIND = alt.Color("kind:N", title=None, scale=alt.Scale(range=KINDS), legend=alt.Legend(**IN_COLUMNS))
NAMES = ["cell:N", "gpu:N", "scenario:N", "batch:Q", "load:N"]
CHARTED_COLUMNS = [
    alt.Tooltip("throughput:Q", title="inferences/s", format=".1f"),
    alt.Tooltip("p99_ms:Q", title="p99 ms", format=".2f"),
    alt.Tooltip("avg_ms:Q", title="avg ms", format=".2f"),
    alt.Tooltip("stable:N"),
    alt.Tooltip("failed_checks:N", title="failed checks"),
]
BY = {"online": "concurrency", "offline": "batch"}
"""What grows in a scenario."""
TEXT = "#3c4454"
CONFIG: dict[str, Any] = {
    "font": "system-ui, -apple-system, Segoe UI, Roboto, sans-serif",
    "view": {"stroke": None},
    "axis": {
        "gridColor": "#e8ebf0",
        "domainColor": "#9aa3b2",
        "tickColor": "#9aa3b2",
        "labelColor": TEXT,
        "labelFontSize": 12,
        "titleFontSize": 12,
    },
    "axisX": {"titleFontWeight": 500},
    "axisY": {"titleFontWeight": 500},
    "text": {"fontSize": 12},
    "legend": {"labelColor": TEXT, "labelFontSize": 12, "labelLimit": 260, "symbolStrokeWidth": 0},
}


class Drawing(Value):
    """One chart of the column `y`: `rows` says which table it draws, `scenario` which of its points, and
    `one_cell` that it is of the one cell that the reader picked."""

    name: str
    title: str
    y: str
    rows: str
    spec: dict[str, Any]
    scenario: str | None = None
    one_cell: bool = False


def of_campaign(tables: dict[str, Table]) -> tuple[Drawing, ...]:
    """The charts of what was measured, and one for each measured number that no list of the report knows."""
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
        _drawing("accuracy", "Accuracy, framework and served", "served_metric", _accuracy(), rows="cells"),
        _drawing("load", "Until it is loaded", "load_s", _bars("load_s", "s"), rows="cells"),
        _drawing(
            "first-request",
            "First request",
            "first_request_ms",
            _bars("first_request_ms", "ms"),
            rows="cells",
        ),
    )


def _of_scenario(scenario: str) -> tuple[Drawing, ...]:
    by = BY[scenario]
    share, energy = "share_of_limit", "energy_j_per_1000"
    of_points = (
        ("pareto", "Throughput against latency", "throughput", _pareto(by)),
        ("breakdown", "Where the time of a request goes", "avg_ms", _breakdown(by)),
        ("throughput", f"Throughput by {by}", "throughput", _by(by)),
        ("share", "Share of the limit", share, _by(by, share, "share of the limit")),
        ("energy", "Energy", energy, _by(by, energy, "J per 1000 inferences")),
    )
    trail = _drawing(
        f"trail-{scenario}",
        f"Throughput from campaign to campaign, {scenario}",
        "change",
        _trail(),
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
        _bars(column.name, column.title) if rows == "cells" else _by("concurrency", column.name, column.title)
    )
    return _drawing(column.name.replace("_", "-"), column.title, column.name, chart, rows=rows)


def _drawing(
    name: str, title: str, y: str, chart: Any, *, rows: str = "points", scenario: str | None = None
) -> Drawing:
    spec = chart.properties(width="container").configure(**CONFIG).to_dict()
    one_cell = name.startswith("breakdown")
    return Drawing(name=name, title=title, y=y, rows=rows, spec=spec, scenario=scenario, one_cell=one_cell)


def _points() -> alt.Chart:
    return alt.Chart(alt.NamedData("points"))


def _of(x: str) -> alt.Chart:
    """The points that have an `x`: those at a request rate have no concurrency."""
    return _points().transform_filter(f"isValid(datum[{x!r}])")


def _pareto(load: str) -> Any:
    """Every point, and the line of those that no other beats in both, each with its load."""
    x = alt.X("throughput:Q", title="inferences/s", axis=alt.Axis(tickCount=6))
    scale = alt.Scale(type="log", nice=False, padding=12)
    y = alt.Y("p99_ms:Q", title="p99 latency (ms, logarithmic)", scale=scale, axis=alt.Axis(tickCount=5))
    best = (
        _points()
        .transform_filter(datum.stable)
        .transform_window(
            least="min(p99_ms)",
            frame=[None, 0],
            sort=[alt.SortField("throughput", "descending")],
            groupby=["model", "gpu"],
        )
        .transform_filter(datum.p99_ms <= datum.least)
        .encode(x=x, y=y, detail=["model:N", "gpu:N"])
    )
    line = best.mark_line(color=TEXT, opacity=0.45, strokeWidth=1.5).encode(order="throughput:Q")
    short = f"isValid(datum.{load}) ? '' + datum.{load} : datum.request_rate + '/s'"
    label = best.transform_calculate(short=short).mark_text(dy=-11, color=TEXT).encode(text="short:N")
    marks = (
        _points()
        .mark_point(filled=True, size=60)
        .encode(
            x=x,
            y=y,
            color=KIND,
            opacity=alt.condition(datum.stable, alt.value(0.9), alt.value(0.25)),
            tooltip=[*NAMES, *CHARTED_COLUMNS],
        )
    )
    return alt.layer(line, marks, label).properties(height=300)


def _breakdown(x: str) -> Any:
    """Average latency of one cell's points, stacked from its components as in the published plots."""
    titles = {column: component.title for column, component in COMPONENTS.items()}
    names = list(titles)
    return (
        _of(x)
        .transform_fold([*names], as_=["part", "ms"])
        .transform_calculate(place=f"indexof({names!r}, datum.part)")
        .mark_bar()
        .encode(
            x=alt.X(f"{x}:O", title=x, axis=alt.Axis(labelAngle=0)),
            y=alt.Y("ms:Q", title="latency (ms)"),
            color=alt.Color(
                "part:N",
                title=None,
                scale=alt.Scale(domain=names, range=COLOURS),
                legend=alt.Legend(**IN_COLUMNS, labelExpr=f"{titles!r}[datum.label]"),
            ),
            order=alt.Order("place:Q"),
            tooltip=["cell:N", "batch:Q", "concurrency:Q", "part:N", alt.Tooltip("ms:Q", format=".3f")],
        )
        .properties(height=260)
    )


def _by(x: str, y: str = "throughput", title: str = "inferences/s") -> Any:
    """A line a cell."""
    scale = alt.Scale(type="log", base=2, nice=False)
    return (
        _of(x)
        .mark_line(point=alt.OverlayMarkDef(size=36), opacity=0.8)
        .encode(
            x=alt.X(f"{x}:Q", title=x, scale=scale, axis=alt.Axis(tickCount=8, format="d")),
            y=alt.Y(f"{y}:Q", title=title),
            color=KIND,
            detail=["cell:N", "gpu:N", "concurrency:N" if x == "batch" else "batch:N"],
            tooltip=[*NAMES, *CHARTED_COLUMNS],
        )
        .properties(height=260)
    )


def _trail() -> Any:
    """A line a cell: its best point in one campaign after the other."""
    return (
        alt.Chart(alt.NamedData("trail"))
        .mark_line(point=alt.OverlayMarkDef(size=36), opacity=0.8)
        .encode(
            x=alt.X("when:O", title=None, sort=None, axis=alt.Axis(labelAngle=-30)),
            y=alt.Y("change:Q", title="throughput since the first", axis=alt.Axis(format="+.0%")),
            color=KIND,
            detail=["cell:N", "gpu:N"],
            tooltip=["campaign:N", *NAMES, *CHARTED_COLUMNS[:2], alt.Tooltip("change:Q", format="+.1%")],
        )
        .properties(height=220)
    )


def _cells(*tooltip: Any) -> alt.Chart:
    return alt.Chart(alt.NamedData("cells")).encode(
        y=alt.Y("cell:N", title=None, sort=None, axis=alt.Axis(labelLimit=170)),
        tooltip=["cell:N", "gpu:N", "verdict:N", *tooltip],
    )


def _accuracy() -> Any:
    """Each cell's served metric and the framework's: the distance is the drop."""
    tips = [
        "metric:N",
        *(
            alt.Tooltip(f"{name}:Q", format=".4f")
            for name in ("framework_metric", "served_metric", "metric_drop", "shuffled_metric")
        ),
    ]
    scale = alt.Scale(zero=False, padding=12)
    served = alt.X(
        "served_metric:Q",
        title="metric: | framework, ● served",
        scale=scale,
        axis=alt.Axis(tickCount=5, format=".4~f"),
    )
    base = _cells(*tips).transform_filter("isValid(datum.served_metric)")
    tick = base.mark_tick(thickness=3, size=16, color="#1b2130").encode(
        x=alt.X("framework_metric:Q", scale=scale)
    )
    dot = base.mark_point(filled=True, size=90).encode(x=served, color=KIND)
    return alt.layer(tick, dot).properties(height=alt.Step(24))


def _bars(name: str, title: str) -> Any:
    tip = alt.Tooltip(f"{name}:Q", title=title, format=".2f")
    base = _cells(tip).transform_filter(f"isValid(datum[{name!r}])").mark_bar(height={"band": 0.6})
    return base.encode(x=alt.X(f"{name}:Q", title=title, axis=alt.Axis(tickCount=5)), color=KIND).properties(
        height=alt.Step(24)
    )
