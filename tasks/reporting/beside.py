"""NVIDIA's published rows beside a campaign's own, and the campaign's own rows in the published form."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import polars as pl

from tasks.reporting.answer import OF_CELL
from tasks.reporting.published import COLUMN, PARAMETER, Section

SAID = ("scenario", "card", "triton_release", "format", "precision", "accelerator")
POINT = ("scenario", "format", "precision", "accelerator", "batch", "concurrency")
"""What two rows must share to stand beside each other."""
VARIANT = "full"
"""The variant that was published: figures of another say nothing beside it."""
WORDS = {
    "ts-trace": ("PyTorch", "TorchScript Trace", "Trace"),
    "ts-script": ("PyTorch", "TorchScript Script", "Script"),
    "onnx": ("ONNX Runtime", "ONNX", "-"),
    "trt": ("NVIDIA TensorRT", "NVIDIA TensorRT", "-"),
    "tf-savedmodel": ("TensorFlow", "TensorFlow SavedModel", "-"),
    "tf-trt": ("TensorFlow", "TensorFlow SavedModel", "-"),
}
ACCELERATORS = {"none": "-", "trt": "NVIDIA TensorRT", "amp": "Automatic FP16"}

Read = Callable[[dict[str, Any]], Any]
FIGURES: dict[str, Read] = {
    **dict.fromkeys(("batch", "client batch size"), lambda row: row["batch"]),
    **dict.fromkeys(("concurrency", "concurrent client requests"), lambda row: row["concurrency"]),
    "inferences/second": lambda row: row["throughput"],
    "client send": lambda row: row["client_send_ms"],
    "network+server send/recv": lambda row: row["network_server_send_recv_ms"],
    "server queue": lambda row: row["server_queue_ms"],
    "server compute input": lambda row: row["server_compute_input_ms"],
    "server compute infer": lambda row: row["server_compute_infer_ms"],
    "server compute output": lambda row: row["server_compute_output_ms"],
    "client recv": lambda row: row["client_recv_ms"],
    **{f"p{n} latency": lambda row, n=n: row[f"p{n}_ms"] for n in (50, 90, 95, 99)},  # type: ignore[misc]
    "avg latency": lambda row: row["avg_ms"],
}
PARAMETERS: dict[str, Read] = {
    "gpu": lambda row: row["gpu"],
    "backend": lambda row: WORDS[row["format"]][0] if row["format"] in WORDS else row["format"],
    "model format": lambda row: WORDS[row["format"]][1] if row["format"] in WORDS else row["format"],
    "conversion variant": lambda row: WORDS[row["format"]][2] if row["format"] in WORDS else "-",
    "model binding": lambda row: "TF-TRT" if row["format"] == "tf-trt" else "-",
    "backend accelerator": lambda row: ACCELERATORS[row["accelerator"]],
    "precision": lambda row: row["precision"].upper(),
    "accelerator precision": lambda row: (row["accelerator_precision"] or "-").upper(),
    "max batch size": lambda row: row["max_batch_size"],
    "number of model instances": lambda row: row["instances"],
    "triton max queue delay": lambda row: row["max_queue_delay_us"],
    "triton preferred batch sizes": lambda row: " ".join(map(str, row["preferred_batch_sizes"] or ["-"])),
    **dict.fromkeys(("max seq length", "sequence length"), lambda row: row["length"]),
    "squad v1.1 f1 score": lambda row: (
        None if row["served_metric"] is None else f"{100 * row['served_metric']:.2f}"
    ),
    "nvidia tensorrt capture cuda graph": lambda row: "Enabled" if row["cuda_graph"] else "Disabled",
    "export format": lambda row: row["export_format"],
    "device kind": lambda row: row["device_kind"],
    "torch jit": lambda row: row["torch_jit"],
    "image resolution": lambda row: row["resolution"],
}
"""A published name, in lower case and without its unit -> what our row says of it; `-` is not known."""


def published(models: Path, names: list[str]) -> dict[str, pl.DataFrame]:
    """The published.csv of every model that has one."""
    paths = {name: models / name / "published.csv" for name in names}
    return {name: pl.read_csv(p, infer_schema=False) for name, p in paths.items() if p.is_file()}


def figures(table: pl.DataFrame) -> pl.DataFrame:
    """The points of a published.csv in our names: `SAID`, batch, concurrency and the figures."""
    found = []
    for row in table.iter_rows(named=True):
        said = {_plain(name): value for name, value in row.items() if value is not None}
        found.append(
            {
                name: row[name]
                for name in ("scenario", "card", "triton_release", "format", "precision", "accelerator")
            }
            | {"batch": int(said.get("batch") or said.get("client batch size") or 1)}
            | {"concurrency": int(said.get("concurrency") or said.get("concurrent client requests") or 1)}
            | {"published": float(said["inferences/second"]), "published_p99_ms": float(said["p99 latency"])}
            | {"published_instances": int(float(said["number of model instances"]))}
        )
    return pl.DataFrame(found)


def beside(measurements: pl.DataFrame, tables: dict[str, pl.DataFrame]) -> pl.DataFrame:
    """Each of our points of the published variant with NVIDIA's row of the same point: that of the same card,
    or else of the fastest that was published; the ratio of throughputs, and what differs."""
    found = []
    for model, table in tables.items():
        ours = measurements.filter((pl.col("model") == model) & (pl.col("variant") == VARIANT))
        cards = figures(table).sort("published", descending=True)
        for row in ours.join(cards, on=POINT).iter_rows(named=True):
            found.append(row | {"same": _same_card(row)})
    if not found:
        return pl.DataFrame()
    all_rows = pl.DataFrame(found, infer_schema_length=None)
    chosen = all_rows.sort(["same", "published"], descending=True).unique((*OF_CELL, *POINT), keep="first")
    return chosen.sort("model", "cell", "scenario", "batch", "concurrency").select(
        *("cell", "gpu", "model", "format", "precision", "scenario", "batch", "concurrency", "throughput"),
        "published",
        ratio=pl.col("throughput") / pl.col("published"),
        p99_ms="p99_ms",
        published_p99_ms="published_p99_ms",
        differs=pl.struct(pl.all()).map_elements(_differs, pl.String),
    )


def in_published_form(
    cells: pl.DataFrame, measurements: pl.DataFrame, table: pl.DataFrame
) -> tuple[Section, ...]:
    """A model's points of a campaign as sections with every parameter and column of its published ones."""
    metric = cells.select(*OF_CELL, "served_metric")
    length = pl.coalesce(
        pl.col("parameters").str.json_path_match(f"$.{name}")
        for name in ("max_seq_length", "sequence_length")
    )
    ours = measurements.join(metric, on=OF_CELL, how="left", nulls_equal=True, maintain_order="left")
    ours = ours.with_columns(length=length, resolution=pl.lit(None, pl.String))
    found = []
    for (_, _, scenario), points in ours.group_by(*OF_CELL, "scenario", maintain_order=True):
        form = table.filter(pl.col("scenario") == scenario)
        if form.is_empty():
            form = table  # as with online BERT, which was not published
        held = [name for name in form.columns if form[name].null_count() < form.height]
        columns = [name for name in held if name.startswith(COLUMN)]
        first = points.row(0, named=True)
        found.append(
            Section(
                scenario=str(scenario).capitalize(),
                title=f"{first['gpu']}, {first['cell']} with {first['precision'].upper()}",
                parameters={
                    n.removeprefix(PARAMETER): _said(n, first) for n in held if n.startswith(PARAMETER)
                },
                columns=tuple(name.removeprefix(COLUMN) for name in columns),
                rows=tuple(
                    tuple(_printed(row, name, form[name]) for name in columns)
                    for row in points.iter_rows(named=True)
                ),
            )
        )
    return tuple(found)


def _plain(name: str) -> str:
    """A published name without prefix and unit, in lower case."""
    return name.removeprefix(PARAMETER).removeprefix(COLUMN).removesuffix(" (ms)").lower()


def _said(name: str, row: dict[str, Any]) -> str:
    read = PARAMETERS.get(_plain(name))
    value = read(row) if read else None
    return "-" if value is None else str(value)


def _printed(row: dict[str, Any], name: str, as_published: pl.Series) -> str:
    """A figure with as many digits as the published column has."""
    read = FIGURES.get(_plain(name))
    if read is None:
        return _said(name, row)
    value = read(row)
    if not isinstance(value, float):
        return "-" if value is None else str(value)
    digits = max(len(figure.partition(".")[2]) for figure in as_published.drop_nulls().to_list())
    return f"{value:.{digits}f}"


def _same_card(row: dict[str, Any]) -> bool:
    card, gpu = row["card"].split("-")[0], row["gpu"] or ""
    return re.search(rf"\b{card}\b", gpu) is not None


def _differs(row: dict[str, Any]) -> str:
    """What is not the same, ours first."""
    pairs = [
        ("card", row["gpu"], row["gpu"] if row["same"] else row["card"]),
        ("Triton", row["triton_release"], row["triton_release_right"]),
        ("instances", row["instances"], row["published_instances"]),
        ("backend", row["backend"], "native"),
        ("weights", "random" if row["random_weights"] else "trained", "trained"),
    ]
    return "; ".join(
        f"{what} {mine}, theirs {theirs or 'not said'}" for what, mine, theirs in pairs if mine != theirs
    )
