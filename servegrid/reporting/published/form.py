"""A campaign's points as sections in the published form of their model: every parameter, every column."""

from __future__ import annotations

from collections.abc import Callable
from operator import itemgetter
from typing import Any

import polars as pl

from servegrid.loadgen.latency import COMPONENTS
from servegrid.reporting.published.compare import VARIANT
from servegrid.reporting.published.document import Section
from servegrid.reporting.published.table import LENGTH, form, plain, section
from servegrid.reporting.recommendation import OF_CELL

WORDS = {
    "ts-trace": ("PyTorch", "TorchScript Trace", "Trace"),
    "ts-script": ("PyTorch", "TorchScript Script", "Script"),
    "onnx": ("ONNX Runtime", "ONNX", "-"),
    "trt": ("NVIDIA TensorRT", "NVIDIA TensorRT", "-"),
    "tf-savedmodel": ("TensorFlow", "TensorFlow SavedModel", "-"),
    "tf-trt": ("TensorFlow", "TensorFlow SavedModel", "-"),
}
UNSTABLE = "*"
ACCELERATORS = {"none": "-", "trt": "NVIDIA TensorRT", "amp": "Automatic FP16"}

Read = Callable[[dict[str, Any]], Any]
PUBLISHED_FIGURES: dict[str, Read] = {
    **dict.fromkeys(("batch", "client batch size"), lambda row: row["batch"]),
    **dict.fromkeys(("concurrency", "concurrent client requests"), lambda row: row["concurrency"]),
    "inferences/second": lambda row: row["throughput"],
    **{component.perf_analyzer.lower(): itemgetter(column) for column, component in COMPONENTS.items()},
    **{f"p{n} latency": itemgetter(f"p{n}_ms") for n in (50, 90, 95, 99)},
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
    "squad v1.1 f1 score": lambda row: _f1(row),
    "nvidia tensorrt capture cuda graph": lambda row: "Enabled" if row["cuda_graph"] else "Disabled",
    "export format": lambda row: row["export_format"],
    "device kind": lambda row: row["device_kind"],
    "torch jit": lambda row: row["torch_jit"],
}
"""A published name, in lower case and without its unit -> its value in our row; `-`: unknown."""


def in_published_form(
    cells: pl.DataFrame, measurements: pl.DataFrame, table: pl.DataFrame
) -> tuple[Section, ...]:
    """A model's points of a campaign as sections with every parameter and column of its published ones."""
    metric = cells.select(*OF_CELL, "served_metric")
    ours = measurements.join(metric, on=OF_CELL, how="left", nulls_equal=True, maintain_order="left")
    found = []
    # A request rate has no place in the published form.
    ours = ours.filter(pl.col("request_rate").is_null()).with_columns(LENGTH)
    for (_, _, scenario), unordered in ours.group_by(*OF_CELL, "scenario", maintain_order=True):
        points = unordered.sort("batch", "concurrency")
        theirs = table.filter(pl.col("scenario") == scenario)
        if theirs.is_empty():
            theirs = table  # as with online BERT, which was not published
        wanted = form(theirs)
        first = points.row(0, named=True)
        unstable = f"; {UNSTABLE} unstable point" if not points["stable"].all() else ""
        title = f"{first['gpu']}, {first['cell']} with {first['precision'].upper()}{unstable}"
        figures = [
            tuple(_printed(row, name, theirs[name]) for name in wanted.columns)
            for row in points.iter_rows(named=True)
        ]
        parameters = {name: _parameter(name, first) for name in wanted.parameters}
        found.append(section(str(scenario), title, parameters, wanted.columns, figures))
    return tuple(found)


def _parameter(name: str, row: dict[str, Any]) -> str:
    read = PARAMETERS.get(plain(name))
    value = read(row) if read else None
    return "-" if value is None else str(value)


def _printed(row: dict[str, Any], name: str, as_published: pl.Series) -> str:
    """A figure with as many digits as the published column has."""
    read = PUBLISHED_FIGURES.get(plain(name))
    if read is None:
        return _parameter(name, row)
    value = read(row)
    if not isinstance(value, float):
        return "-" if value is None else str(value)
    digits = max(len(figure.partition(".")[2]) for figure in as_published.drop_nulls().to_list())
    mark = UNSTABLE if plain(name) == "inferences/second" and not row["stable"] else ""
    return f"{value:.{digits}f}{mark}"


def _f1(row: dict[str, Any]) -> str | None:
    """In percent; of another variant than the published one, with the data that really gave it."""
    if row["served_metric"] is None:
        return None
    data = "" if row["variant"] == VARIANT else f" (the {row['variant']} variant's own data, not SQuAD)"
    return f"{100 * row['served_metric']:.2f}{data}"
