"""NVIDIA's published rows compared with a campaign's own: the ratio, and what differs."""

from __future__ import annotations

import re
from typing import Any

import polars as pl

from servegrid.reporting.published.table import LENGTH, plain
from servegrid.reporting.recommendation import OF_CELL

DEPLOYMENT = ("scenario", "card", "triton_release", "format", "precision", "accelerator")
PUBLISHED_POINT = ("scenario", "format", "precision", "executed_by", "batch", "concurrency")
"""Columns that two rows must share to be compared."""
EXECUTED = (
    pl.when(pl.col("format") == "tf-trt")
    .then(pl.lit("trt"))
    .otherwise(pl.col("accelerator"))
    .alias("executed_by")
)
"""The accelerator. That of TF-TRT is part of the format: some tables name it, some do not."""
STATED = {
    "length": ("sequence length", "max seq length"),
    "max_batch_size": ("max batch size", "max batch size"),
    "preferred_batch_sizes": ("preferred batch sizes", "triton preferred batch sizes"),
    "max_queue_delay_us": ("max queue delay (us)", "triton max queue delay"),
    "cuda_graph": ("CUDA graph", "nvidia tensorrt capture cuda graph"),
    **{name: (name.replace("_", " "), name) for name in ("protocol", "shared_memory", "input_data")},
}
"""Our column -> its title and the published parameter, which not every table states."""
VARIANT = "full"
"""The variant that was published; other variants are not comparable."""


def figures(table: pl.DataFrame) -> pl.DataFrame:
    """The points of a published.csv in our names: `DEPLOYMENT`, batch, concurrency and the figures."""
    found = []
    for row in table.iter_rows(named=True):
        cells = {plain(name): value for name, value in row.items() if value is not None}
        found.append(
            {name: row[name] for name in DEPLOYMENT}
            | {"batch": int(cells.get("batch") or cells.get("client batch size") or 1)}
            | {"concurrency": int(cells.get("concurrency") or cells.get("concurrent client requests") or 1)}
            | {
                "published": float(cells["inferences/second"]),
                "published_p99_ms": float(cells["p99 latency"]),
            }
            | {"published_instances": int(float(cells["number of model instances"]))}
            | {
                f"published_{ours}": cells.get(theirs, "").removesuffix(".0") or None
                for ours, (_, theirs) in STATED.items()
            }
        )
    return pl.DataFrame(found, infer_schema_length=None)


def join_published(measurements: pl.DataFrame, tables: dict[str, pl.DataFrame]) -> pl.DataFrame:
    """Our points of the published variant with NVIDIA's row of the same point, of the same card or else of
    the fastest card; the ratio of throughputs, and the differences."""
    found = []
    for model, table in tables.items():
        of_model = measurements.filter((pl.col("model") == model) & (pl.col("variant") == VARIANT))
        ours = of_model.with_columns(LENGTH, EXECUTED)
        cards = figures(table).with_columns(EXECUTED).sort("published", descending=True)
        for row in ours.join(cards, on=PUBLISHED_POINT).iter_rows(named=True):
            found.append(row | {"same": _same_card(row)})
    if not found:
        return pl.DataFrame()
    all_rows = pl.DataFrame(found, infer_schema_length=None)
    chosen = all_rows.sort(["same", "published"], descending=True).unique(
        (*OF_CELL, *PUBLISHED_POINT), keep="first"
    )
    return chosen.sort("model", "cell", "scenario", "batch", "concurrency").select(
        *("cell", "gpu", "model", "format", "precision", "scenario", "batch", "concurrency", "throughput"),
        "published",
        ratio=pl.col("throughput") / pl.col("published"),
        p99_ms="p99_ms",
        published_p99_ms="published_p99_ms",
        differs=pl.struct(pl.all()).map_elements(_differs, pl.String),
    )


def _same_card(row: dict[str, Any]) -> bool:
    card, gpu = row["card"].split("-")[0], row["gpu"] or ""
    return re.search(rf"\b{card}\b", gpu) is not None


def _differs(row: dict[str, Any]) -> str:
    """The differences, ours first; a setting that not every table states counts where both state it."""
    pairs = [
        ("card", row["gpu"], row["gpu"] if row["same"] else row["card"]),
        ("Triton", row["triton_release"], row["triton_release_right"]),
        ("instances", row["instances"], row["published_instances"]),
        ("backend", row["backend"], "native"),
        ("weights", "random" if row["random_weights"] else "trained", "trained"),
    ]
    stated = [(title, _printed(row[ours]), row[f"published_{ours}"]) for ours, (title, _) in STATED.items()]
    pairs += [pair for pair in stated if None not in pair]
    return "; ".join(
        f"{what} {mine}, theirs {theirs or 'not stated'}" for what, mine, theirs in pairs if mine != theirs
    )


def _printed(value: object) -> str | None:
    """A setting of ours as the published tables print it; null where there is none."""
    if isinstance(value, bool):
        return "Enabled" if value else "Disabled"
    if isinstance(value, list | pl.Series):
        return " ".join(map(str, value)) or None
    return None if value is None else str(value)
