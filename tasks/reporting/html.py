"""report.html: one file that needs nothing else, not even a network."""

from __future__ import annotations

import html
import json
from typing import Any

import altair as alt
import polars as pl

from tasks.reporting.answer import choices, lead_text

PARTS = {
    "client_send_ms": "client send",
    "network_server_send_recv_ms": "network + server send/recv",
    "server_queue_ms": "server queue",
    "server_compute_input_ms": "compute input",
    "server_compute_infer_ms": "compute infer",
    "server_compute_output_ms": "compute output",
    "client_recv_ms": "client recv",
}
STYLE = """
body { font: 16px/1.5 system-ui, sans-serif; margin: 0 auto; max-width: 60rem; padding: 1rem; color: #1b1f24 }
h1 { font-size: 1.25rem } h2 { font-size: 1.1rem; margin-top: 2rem }
.answers { display: grid; gap: .75rem; grid-template-columns: repeat(auto-fit, minmax(16rem, 1fr)) }
.answer { border: 1px solid #d0d7de; border-radius: .5rem; padding: .75rem }
.answer b { display: block; font-size: 1.1rem } .answer small { color: #57606a }
.wide { overflow-x: auto } table { border-collapse: collapse; font-size: .85rem }
td, th { border-bottom: 1px solid #d0d7de; padding: .25rem .6rem; text-align: left; white-space: nowrap }
.passed { color: #1a7f37 } .error, .failed_accuracy { color: #cf222e }
"""


def page(campaign: str, cells: pl.DataFrame, measurements: pl.DataFrame) -> str:
    """The whole page; every string from outside is escaped."""
    title = html.escape(f"servegrid campaign {campaign}")
    gpu = html.escape(cells["gpu"][0]) if cells.height else ""
    return "\n".join(
        [
            f"<!doctype html><html lang=en><meta charset=utf-8><title>{title}</title>",
            "<meta name=viewport content='width=device-width, initial-scale=1'>",
            f"<style>{STYLE}</style><h1>{title}</h1><p>{gpu}</p>",
            "<h2>What to ship</h2>",
            _answers(cells, measurements),
            *(_charts(measurements) if measurements.height else []),
            "<h2>Cells</h2>",
            _cells(cells),
            "</html>",
        ]
    )


def _answers(cells: pl.DataFrame, measurements: pl.DataFrame) -> str:
    cards = [
        "<div class=answer>"
        f"<small>{html.escape(c.model)}: {html.escape(c.aim)}</small>"
        f"<b>{html.escape(c.format)} {html.escape(c.precision)}</b>"
        f"{c.throughput:.1f} inferences/s, p99 {c.p99_ms:.2f} ms<br>"
        f"batch {c.batch}, concurrency {c.concurrency}, {c.instances} instance(s)<br>"
        f"{html.escape(c.metric)} {c.served_metric:.4f}<br><small>{lead_text(c)}</small></div>"
        for c in choices(cells, measurements)
    ]
    if not cards:
        return "<p>Nothing: no cell passed with a stable point.</p>"
    return f"<div class=answers>{''.join(cards)}</div>"


def _charts(measurements: pl.DataFrame) -> list[str]:
    """Both charts as one Vega-Lite view, so that the library is in the page once."""
    kept = measurements.select(
        "cell", "scenario", "batch", "concurrency", "throughput", "p99_ms", "stable", *PARTS
    ).with_columns(point=pl.format("{}, batch {} x {}", "scenario", "batch", "concurrency"))
    against = (
        alt.Chart(kept)
        .mark_line(point=True)
        .encode(
            x=alt.X("throughput:Q", title="inferences/s"),
            y=alt.Y("p99_ms:Q", title="p99 latency (ms)"),
            color=alt.Color("cell:N", legend=alt.Legend(orient="bottom", columns=1, labelLimit=400)),
            order="throughput:Q",
            tooltip=["cell", "scenario", "batch", "concurrency", "throughput", "p99_ms", "stable"],
        )
        .properties(width=330, height=240)
        .facet(alt.Facet("scenario:N", title=None), columns=2)
    )
    parts = kept.unpivot(
        list(PARTS), index=["cell", "scenario", "point"], variable_name="part", value_name="ms"
    )
    place = {name: number for number, name in enumerate(PARTS)}
    parts = parts.with_columns(
        pl.col("part").replace_strict(PARTS), place=pl.col("part").replace_strict(place)
    )
    stacked = (
        alt.Chart(parts)
        .mark_bar()
        .encode(
            x=alt.X("ms:Q", title="latency (ms)"),
            y=alt.Y("point:N", title=None, sort=None),
            color=alt.Color(
                "part:N", sort=list(PARTS.values()), legend=alt.Legend(orient="bottom", columns=2)
            ),
            order="place:Q",
            tooltip=["cell", "point", "part", "ms"],
        )
        .properties(width=330)
        .facet(alt.Facet("cell:N", title=None, header=alt.Header(labelLimit=330)), columns=2)
    )
    alt.data_transformers.disable_max_rows()  # the rows are in the page; altair's limit is for notebooks
    chart = alt.vconcat(against, stacked).resolve_scale(color="independent")
    body = chart.to_html(inline=True, fullhtml=False, output_div="charts", json_kwds={"cls": _InsideScript})
    return ["<h2>Throughput against latency, and where the time goes</h2>", f"<div class=wide>{body}</div>"]


class _InsideScript(json.JSONEncoder):
    """JSON that cannot end the script element it stands in."""

    def encode(self, o: Any) -> str:
        return super().encode(o).replace("<", "\\u003c")


def _cells(cells: pl.DataFrame) -> str:
    rows = []
    for row in cells.iter_rows(named=True):
        reason = (row["reason"] or "").split("\n", 1)[0]
        metric = "" if row["served_metric"] is None else f"{row['metric']} {row['served_metric']:.4f}"
        rows.append(
            f"<tr><td>{html.escape(row['cell'])}<td class={row['verdict']}>{row['verdict']}"
            f"<td>{html.escape(metric)}<td>{html.escape(reason)}"
        )
    head = "<tr><th>cell<th>verdict<th>accuracy served<th>reason"
    return f"<div class=wide><table>{head}{''.join(rows)}</table></div>"
