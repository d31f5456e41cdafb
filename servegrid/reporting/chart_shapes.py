"""The shapes of the report's charts in Altair; each takes its rows from named data."""

from __future__ import annotations

from typing import Any

import altair as alt
from altair import datum

from servegrid.loadgen.latency import COMPONENTS

COLOURS = ["#b8c4d6", "#7d93b2", "#f2a541", "#9bd1b5", "#1b7f5c", "#55b08a", "#d8dee8"]
"""Of the latency's components, in their order."""
KINDS = ["#0b6bcb", "#d1495b", "#2e933c", "#8a4fbe", "#e07a1f", "#12857f", "#b5557d", "#6b6e76", "#a38a00"]
IN_COLUMNS: dict[str, Any] = {"orient": "top", "columns": {"expr": "width < 400 ? 1 : 3"}}
"""A legend that fits a phone."""
KIND = alt.Color("kind:N", title=None, scale=alt.Scale(range=KINDS), legend=alt.Legend(**IN_COLUMNS))
NAMES = ["cell:N", "gpu:N", "scenario:N", "batch:Q", "load:N"]
CHARTED_COLUMNS = [
    alt.Tooltip("throughput:Q", title="inferences/s", format=".1f"),
    alt.Tooltip("p99_ms:Q", title="p99 ms", format=".2f"),
    alt.Tooltip("avg_ms:Q", title="avg ms", format=".2f"),
    alt.Tooltip("stable:N"),
    alt.Tooltip("failed_checks:N", title="failed checks"),
]
TEXT = "#3c4454"


def _points() -> alt.Chart:
    return alt.Chart(alt.NamedData("points"))


def _of(x: str) -> alt.Chart:
    """The points with an `x`: points at a request rate have no concurrency."""
    return _points().transform_filter(f"isValid(datum[{x!r}])")


def pareto(load: str) -> Any:
    """Every point, and the Pareto front of throughput and p99 labelled with the load."""
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


def breakdown(x: str) -> Any:
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


def by_load(x: str, y: str = "throughput", title: str = "inferences/s") -> Any:
    """One line for each cell."""
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


def trail() -> Any:
    """One line for each cell: its best point, campaign by campaign."""
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


def accuracy() -> Any:
    """The served metric and the framework's of each cell; the distance is the drop."""
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


def bars(name: str, title: str) -> Any:
    tip = alt.Tooltip(f"{name}:Q", title=title, format=".2f")
    base = _cells(tip).transform_filter(f"isValid(datum[{name!r}])").mark_bar(height={"band": 0.6})
    return base.encode(x=alt.X(f"{name}:Q", title=title, axis=alt.Axis(tickCount=5)), color=KIND).properties(
        height=alt.Step(24)
    )
