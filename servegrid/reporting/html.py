"""report.html: one file that needs nothing else, not even a network."""

from __future__ import annotations

import functools
import html
import json
from importlib.resources import files

import polars as pl
import vl_convert

from servegrid.campaign.columns import parse_json
from servegrid.campaign.results import Verdict
from servegrid.domain.slo import Slo
from servegrid.reporting.charts import Drawing
from servegrid.reporting.columns import FILTERS
from servegrid.reporting.markdown import verdicts
from servegrid.reporting.recommendation import NOTHING, UNPROVEN, Recommendation, best, frontier, lead_text
from servegrid.reporting.tables import Table

MEANING = {
    "pareto": "One mark a measured point, faint where it was not stable. The line joins the stable points "
    "that no other beats in both; above them stands their concurrency, or offline their batch.",
    "breakdown": "Average latency of one cell's requests, stacked in the order of their way.",
    "by": "A line a cell.",
    "share": "Throughput over the most that the model's FLOPs and bytes allow on this machine, as measured.",
    "energy": "The card's own average power, as its driver tells it, over inferences/s: without the host.",
    "trail": "A line a cell: the throughput of its best point here, in one campaign after the other.",
    "accuracy": "The task's metric, of the framework and of what Triton served. The drop is the distance.",
    "load": "Until the server had the model ready, and how long its first request then took.",
}


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
    first = next(iter(answers), None)
    failed = (cells["verdict"] == "error").any()
    notes = {
        "cells": f"servegrid bundle CELL FOLDER --campaign {campaign} repeats an error." if failed else ""
    }
    payload = {
        "filters": FILTERS,
        "tables": {name: table.model_dump() for name, table in tables.items()},
        "charts": [drawing.model_dump() for drawing in drawings],
        "winners": [c.cell if c.gpu is None else f"{c.cell} on {c.gpu}" for c in answers],
        "first_model": first.model if first else None,
    }
    return "\n".join(
        [
            '<!doctype html><html lang="en"><head><meta charset="utf-8">',
            f"<title>{html.escape(f'servegrid campaign {campaign}')}</title>",
            '<meta name="viewport" content="width=device-width, initial-scale=1">',
            f"<style>{_asset('page.css')}</style></head><body>",
            _header(campaign, cells),
            "<main>",
            _answers(answers, verdict),
            _filters(),
            *(_measured(cells, measurements, drawings) if measurements.height else []),
            *(_table(name, title, notes.get(name, "")) for name, title in _TABLES.items() if name in tables),
            "</main>",
            f"<footer>Written by servegrid {html.escape(_version(cells))}. Opens without a network.</footer>",
            f'<script type="application/json" id="report">{_inside_script(payload)}</script>',
            f"<script>{library()}</script>" if drawings else "",
            f"<script>{_asset('page.js')}</script></body></html>",
        ]
    )


_TABLES = {
    "moves": "What moved beyond noise, and what changed with it",
    "cells": "Cells: verdicts, accuracy, load",
    "published": "compared with NVIDIA's published figures",
    "points": "Measured points",
    "same": "Parameters and versions that all cells share",
    "parameters": "Parameters that differ",
}


@functools.cache
def library() -> str:
    """Vega, Vega-Lite and Vega-Embed as one script."""
    return str(vl_convert.javascript_bundle("window.vegaEmbed = vegaEmbed;")).replace(
        "</script", "<\\/script"
    )


def _header(campaign: str, cells: pl.DataFrame) -> str:
    gpus = ", ".join(cells["gpu"].drop_nulls().unique(maintain_order=True))
    where = html.escape(" · ".join((gpus, verdicts(cells), campaign)))
    return f'<header><p class="brand">servegrid</p><h1>What to ship</h1><p class="where">{where}</p></header>'


def _answers(answers: list[Recommendation], verdict: Verdict) -> str:
    if not answers:
        return f'<p class="panel">{NOTHING}</p>'
    unproven = "" if verdict == "passed" else f'<p class="panel">{UNPROVEN}</p>'
    cards = "".join(_card(chosen, verdict) for chosen in answers)
    return f'{unproven}<div class="answers">{cards}</div>'


def _card(chosen: Recommendation, verdict: Verdict) -> str:
    """The recommended cell, then its figures, the objective's own first."""
    drop = "" if chosen.metric_drop is None else f"drop {chosen.metric_drop + 0.0:.4f}"
    figures = {
        "throughput": (f"{chosen.throughput:.1f}", "inferences/s"),
        "p99": (f"{chosen.p99_ms:.2f} ms", ""),
        "accuracy": (chosen.accuracy, drop),
        "instances": (str(chosen.instances), ""),
        "batch": (str(chosen.batch), ""),
        chosen.load[0]: (chosen.load[1], ""),
    }
    first = "p99" if chosen.column == "p99_ms" else "throughput"
    listed = "".join(
        f"<div{' class=goal' if name == first else ''}><dt>{name}</dt>{_fact(name, text)}"
        f"{f'<dd class=unit>{unit}</dd>' if unit else ''}</div>"
        for name, (text, unit) in sorted(figures.items(), key=lambda figure: figure[0] != first)
    )
    names = " ".join(_fact(name, getattr(chosen, name), "span") for name in ("format", "precision", "model"))
    where = chosen.cell if chosen.gpu is None else f"{chosen.cell} on {chosen.gpu}"
    kind = "answer" if verdict == "passed" else "answer unproven"
    return (
        f'<article class="{kind}" {_of(chosen.model, chosen.gpu)}><h2>{html.escape(chosen.objective)}</h2>'
        f'<p class="headline">{names}</p><dl>{listed}</dl>'
        f'<p class="margin"><span>{html.escape(lead_text(chosen))}</span><br>{html.escape(where)}</p>'
        "</article>"
    )


def _fact(name: str, text: str, tag: str = "dd") -> str:
    return f'<{tag} data-fact="{name}">{html.escape(text)}</{tag}>'


def _filters() -> str:
    picks = "".join(
        f'<label for="filter-{name}">{name.replace("gpu", "GPU")}<select id="filter-{name}"></select></label>'
        for name in FILTERS
    )
    return f'<nav class="filters" aria-label="Filters">{picks}<span class="count" id="count"></span></nav>'


def _measured(cells: pl.DataFrame, measurements: pl.DataFrame, drawings: tuple[Drawing, ...]) -> list[str]:
    """The panels of the charts, and what each latency limit allows."""
    left = {drawing.name: drawing for drawing in drawings}
    panels = []
    for title, note, names in _PANELS:
        drawn = [left.pop(name) for name in names if name in left]
        pick = (
            '<label class="pick">cell<select id="one-cell"></select></label>' if note == "breakdown" else ""
        )
        if drawn:
            panels.append(_panel(title, _note(note), pick, _drawn(drawn)))
    panels += [_panel(drawing.title, _drawn([drawing])) for drawing in left.values()]
    return [*panels[:1], _limits(cells, measurements), *panels[1:]]


_PANELS = (
    ("Throughput against latency", "pareto", ("pareto-online", "pareto-offline")),
    ("Where the time of a request goes", "breakdown", ("breakdown-online", "breakdown-offline")),
    ("Throughput by concurrency and by batch", "by", ("throughput-online", "throughput-offline")),
    ("Share of the limit", "share", ("share-online", "share-offline")),
    ("Energy per 1000 inferences", "energy", ("energy-online", "energy-offline")),
    ("Accuracy, and its drop", "accuracy", ("accuracy",)),
    ("Load and first request", "load", ("load", "first-request")),
    ("Campaigns over time", "trail", ("trail-online", "trail-offline")),
)


def _limits(cells: pl.DataFrame, measurements: pl.DataFrame) -> str:
    """What each latency limit allows: every objective that a reader may have is answered by a row."""
    rows = []
    for row in frontier(cells, measurements).sort("p99_ms").iter_rows(named=True):
        numbers = (f"{row['p99_ms']:.2f}", f"{row['throughput']:.1f}", row["instances"], row["concurrency"])
        columns = "".join(f'<td class="number">{number}' for number in numbers)
        rows.append(f"<tr {_of(row['model'], row['gpu'])}>{columns}<td>{html.escape(row['cell'])}")
    if not rows:
        return ""
    titles = ("p99 at most, ms", "inferences/s", "instances", "concurrency")
    head = "".join(f'<th class="number">{title}' for title in titles)
    table = f'<div class="wide"><table><tr>{head}<th>ship{"".join(rows)}</table></div>'
    return _panel("What each latency limit allows, online", table)


def _of(model: str, gpu: str | None) -> str:
    """The attributes by which an answer is shown or hidden as the reader picks."""
    return f'data-model="{html.escape(model)}" data-gpu="{html.escape(gpu or "")}"'


def _drawn(drawings: list[Drawing]) -> str:
    if len(drawings) == 1:
        return _chart(drawings[0])
    titles = {d.name: (d.scenario or d.title).capitalize() for d in drawings}
    parts = "".join(f"<div><h3>{html.escape(titles[d.name])}</h3>{_chart(d)}</div>" for d in drawings)
    return f'<div class="pair">{parts}</div>'


def _chart(drawing: Drawing) -> str:
    return f'<div class="chart" id="chart-{drawing.name}"></div>'


def _note(name: str) -> str:
    return f'<p class="note">{MEANING[name]}</p>'


def _panel(title: str, *parts: str) -> str:
    return f'<section class="panel"><h2>{html.escape(title)}</h2>{"".join(parts)}</section>'


def _table(name: str, title: str, note: str) -> str:
    """A table's place; the long list of what all cells share is there for who asks."""
    place = f'<div id="table-{name}"></div>'
    if name == "same":
        place = f"<details><summary>show them</summary>{place}</details>"
    return _panel(title, f'<p class="note">{html.escape(note)}</p>' if note else "", place)


def _version(cells: pl.DataFrame) -> str:
    texts = cells["versions"].drop_nulls()
    return str(parse_json(texts[0]).get("servegrid", "")) if texts.len() else ""


def _asset(name: str) -> str:
    return files("servegrid.reporting").joinpath(name).read_text(encoding="utf-8")


def _inside_script(value: object) -> str:
    """JSON that cannot end the script element it stands in."""
    return json.dumps(value, separators=(",", ":")).replace("<", "\\u003c")
