"""The charts as SVG and PNG, each model and device in a folder of its own."""

from __future__ import annotations

import json
import re
from pathlib import Path

import polars as pl
import vl_convert

from servegrid.host.files import write_atomic
from servegrid.reporting.charts import Drawing
from servegrid.reporting.recommendation import best
from servegrid.reporting.tables import cell_rows, point_rows

WIDTH = 640
MOST = 40
"""The most cells in one image: the fastest. The page has all cells."""


def write_images(
    folder: Path,
    cells: pl.DataFrame,
    measurements: pl.DataFrame,
    drawings: tuple[Drawing, ...],
    trail: pl.DataFrame,
) -> None:
    """Write `<model>-<gpu>/<chart>.svg` and `.png`; a breakdown shows the recommended cell."""
    of_cells, of_points = cell_rows(cells, measurements), point_rows(measurements)
    of_trail = point_rows(trail)
    answers: dict[tuple[object, ...], str] = {}
    answers |= {(c.model, c.gpu, c.scenario): c.cell for c in reversed(best(cells, measurements)[0])}
    for (model, gpu), points in of_points.group_by("model", "gpu", maintain_order=True):
        here = pl.col("model").eq_missing(model) & pl.col("gpu").eq_missing(gpu)
        fastest = points.group_by("cell").agg(pl.max("throughput")).sort("throughput", descending=True)
        drawn = pl.col("cell").is_in(fastest["cell"].head(MOST).implode())
        few = f" (the {MOST} fastest of {fastest.height} cells)" if fastest.height > MOST else ""
        rows = {"points": points.filter(drawn)}
        rows |= {"cells": of_cells.filter(here & drawn), "trail": of_trail.filter(here & drawn)}
        name = re.sub(r"[^A-Za-z0-9]+", "-", f"{model} {gpu or ''}").strip("-")
        for drawing in drawings:
            chosen = rows[drawing.rows].filter(pl.col(drawing.y).is_not_null())
            if drawing.scenario:
                chosen = chosen.filter(pl.col("scenario") == drawing.scenario)
            if drawing.one_cell:
                cell = answers.get((model, gpu, drawing.scenario), points["cell"][0])
                chosen = chosen.filter(pl.col("cell") == cell)
            if chosen.height:
                title = f"{drawing.title}: {cell}" if drawing.one_cell else drawing.title + few
                image = _svg(drawing, chosen, title)
                write_atomic(folder / name / f"{drawing.name}.svg", image)
                (folder / name / f"{drawing.name}.png").write_bytes(vl_convert.svg_to_png(image))


def _svg(drawing: Drawing, rows: pl.DataFrame, title: str) -> str:
    text = json.dumps(drawing.spec)
    read = rows.select(name for name in rows.columns if name in text)
    image = {
        "datasets": {drawing.rows: read.to_dicts()},
        "width": WIDTH,
        "background": "white",
        "title": title,
    }
    return str(vl_convert.vegalite_to_svg(drawing.spec | image))
