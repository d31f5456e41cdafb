"""report.html: one file that needs nothing else, not even a network. `page.html.j2` is its template."""

from __future__ import annotations

import functools
from typing import NamedTuple

import jinja2
import polars as pl
import vl_convert

from servegrid.campaign.columns import parse_json
from servegrid.domain.slo import Slo
from servegrid.reporting.charts import Drawing
from servegrid.reporting.columns import FILTERS
from servegrid.reporting.markdown import verdicts
from servegrid.reporting.recommendation import NOTHING, UNPROVEN, Recommendation, best, frontier, lead_text
from servegrid.reporting.tables import Table

PANELS = (
    (
        "Throughput against latency",
        "Each mark is a measured point; an unstable point is faint. The line is the Pareto front of the "
        "stable points, labelled with their concurrency, or offline with their batch.",
        ("pareto-online", "pareto-offline"),
    ),
    (
        "Where the time of a request goes",
        "Average latency of one cell's requests, stacked from its components in their order.",
        ("breakdown-online", "breakdown-offline"),
    ),
    (
        "Throughput by concurrency and by batch",
        "One line for each cell.",
        ("throughput-online", "throughput-offline"),
    ),
    (
        "Share of the limit",
        "Throughput divided by the limit that the model's FLOPs and bytes set on this machine.",
        ("share-online", "share-offline"),
    ),
    (
        "Energy per 1000 inferences",
        "The card's average power, from its driver, divided by inferences/s. The host's is not included.",
        ("energy-online", "energy-offline"),
    ),
    (
        "Accuracy and its drop",
        "The task metric of the framework and of the served model. The distance is the drop.",
        ("accuracy",),
    ),
    (
        "Load and first request",
        "Time until the server has loaded the model, and latency of the first request after that.",
        ("load", "first-request"),
    ),
    (
        "Campaigns over time",
        "One line for each cell: the throughput of its best point, campaign by campaign.",
        ("trail-online", "trail-offline"),
    ),
)
"""Title and note of each panel of charts, and the charts that it shows."""

TABLES = {
    "moves": "Changes beyond noise since earlier campaigns",
    "cells": "Cells: verdicts, accuracy, load",
    "published": "Compared with NVIDIA's published figures",
    "points": "Measured points",
    "same": "Parameters and versions that all cells share",
    "parameters": "Parameters that differ",
}


class Panel(NamedTuple):
    """A panel of one chart or more."""

    title: str
    note: str
    drawings: list[Drawing]

    @property
    def of_one_cell(self) -> bool:
        """Whether the reader picks the cell that the charts show."""
        return any(drawing.one_cell for drawing in self.drawings)


class Figure(NamedTuple):
    """A figure of a card."""

    name: str
    text: str
    unit: str = ""


class Card(NamedTuple):
    """A recommendation as the page shows it; the figure that decides comes first."""

    chosen: Recommendation
    figures: list[Figure]
    lead: str
    where: str


class TablePanel(NamedTuple):
    """The place of a table that page.js draws; `folded` where it is long and seldom read."""

    name: str
    title: str
    note: str = ""
    folded: bool = False


def page(
    campaign: str,
    cells: pl.DataFrame,
    measurements: pl.DataFrame,
    tables: dict[str, Table],
    drawings: tuple[Drawing, ...],
    slo: Slo | None = None,
) -> str:
    """The whole page; every string from outside is escaped."""
    answers, verdict = best(cells, measurements, slo)
    proven = verdict == "passed"
    cards = [_card(chosen) for chosen in answers]
    gpus = ", ".join(cells["gpu"].drop_nulls().unique(maintain_order=True))
    payload = {
        "filters": FILTERS,
        "tables": {name: table.model_dump() for name, table in tables.items()},
        "charts": [drawing.model_dump() for drawing in drawings],
        "winners": [card.where for card in cards],
        "first_model": answers[0].model if answers else None,
    }
    return _template().render(
        campaign=campaign,
        where=" · ".join((gpus, verdicts(cells), campaign)),
        warning=NOTHING if not answers else "" if proven else UNPROVEN,
        cards=cards,
        proven=proven,
        filters=FILTERS,
        panels=_panels(drawings) if measurements.height else [],
        limits=frontier(cells, measurements).sort("p99_ms").to_dicts(),
        tables=_table_panels(campaign, cells, tables),
        version=_version(cells),
        payload=payload,
        library=library() if drawings else "",
    )


@functools.cache
def library() -> str:
    """Vega, Vega-Lite and Vega-Embed as one script."""
    script = str(vl_convert.javascript_bundle("window.vegaEmbed = vegaEmbed;"))
    return script.replace("</script", "<\\/script")


@functools.cache
def _template() -> jinja2.Template:
    loader = jinja2.PackageLoader("servegrid.reporting", "")
    environment = jinja2.Environment(
        loader=loader, autoescape=True, undefined=jinja2.StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    # A browser cannot parse NaN or Infinity in JSON.
    environment.policies["json.dumps_kwargs"] = {"separators": (",", ":"), "allow_nan": False}
    return environment.get_template("page.html.j2")


def _card(chosen: Recommendation) -> Card:
    drop = "" if chosen.metric_drop is None else f"drop {chosen.metric_drop + 0.0:.4f}"
    throughput = Figure("throughput", f"{chosen.throughput:.1f}", "inferences/s")
    p99 = Figure("p99", f"{chosen.p99_ms:.2f} ms")
    first = [p99, throughput] if chosen.column == "p99_ms" else [throughput, p99]
    others = [
        Figure("accuracy", chosen.accuracy, drop),
        Figure("instances", str(chosen.instances)),
        Figure("batch", str(chosen.batch)),
        Figure(*chosen.load),
    ]
    where = chosen.cell if chosen.gpu is None else f"{chosen.cell} on {chosen.gpu}"
    return Card(chosen, [*first, *others], lead_text(chosen), where)


def _panels(drawings: tuple[Drawing, ...]) -> list[Panel]:
    """The panels of the charts; a chart that no panel names has one of its own."""
    left = {drawing.name: drawing for drawing in drawings}
    named = [
        Panel(title, note, [left.pop(name) for name in names if name in left])
        for title, note, names in PANELS
    ]
    own = [Panel(drawing.title, "", [drawing]) for drawing in left.values()]
    return [panel for panel in (*named, *own) if panel.drawings]


def _table_panels(campaign: str, cells: pl.DataFrame, tables: dict[str, Table]) -> list[TablePanel]:
    failed = (cells["verdict"] == "error").any()
    notes = {
        "cells": f"servegrid bundle CELL FOLDER --campaign {campaign} writes what repeats an error."
        if failed
        else ""
    }
    return [
        TablePanel(name, title, notes.get(name, ""), folded=name == "same")
        for name, title in TABLES.items()
        if name in tables
    ]


def _version(cells: pl.DataFrame) -> str:
    texts = cells["versions"].drop_nulls()
    return str(parse_json(texts[0]).get("servegrid", "")) if texts.len() else ""
