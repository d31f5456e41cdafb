"""The columns of the page's tables and their titles; `report.md` shows fewer.

A table shows the columns that were measured. A column that no list names follows under its own name, so that
a new measurement needs no change here.
"""

from __future__ import annotations

import polars as pl

from servegrid.campaign.columns import LOAD, TRUST
from servegrid.domain.values import Value
from servegrid.loadgen.latency import COMPONENTS

FILTERS = ("model", "format", "precision", "gpu")
"""The columns of the page's filters."""


class Column(Value):
    """A column of a table; a column of numbers has its digits after the point."""

    name: str
    title: str
    digits: int | None = None


def _columns(*entries: tuple[str, str] | tuple[str, str, int]) -> tuple[Column, ...]:
    return tuple(Column(name=e[0], title=e[1], digits=e[2] if len(e) > 2 else None) for e in entries)


CELLS = _columns(
    ("cell", "cell"),
    ("gpu", "GPU"),
    ("verdict", "verdict"),
    ("reason", "reason"),
    ("metric", "metric"),
    ("metric_reference", "metric compares with"),
    ("served_metric", "served", 4),
    ("converted_metric", "converted", 4),
    ("framework_metric", "framework", 4),
    ("metric_drop", "drop", 4),
    ("shuffled_metric", "shuffled baseline", 4),
    ("largest_difference", "largest difference", 6),
    ("least_cosine", "least cosine", 6),
    ("invariance", "batch invariance", 6),
    ("load_s", "load s", 2),
    ("first_request_ms", "first request ms", 1),
    ("artifact_bytes", "artifact bytes"),
    ("server_peak_bytes", "server peak bytes"),
    ("largest_batch", "largest batch that fits"),
    ("wall_s", "wall s", 1),
    ("log", "log"),
    ("command", "command to repeat"),
)

POINTS = _columns(
    ("cell", "cell"),
    ("gpu", "GPU"),
    ("scenario", "scenario"),
    ("batch", "batch"),
    ("concurrency", "concurrency"),
    ("request_rate", "requests/s", 1),
    ("throughput", "inferences/s", 1),
    ("p50_ms", "p50 ms", 2),
    ("p90_ms", "p90 ms", 2),
    ("p95_ms", "p95 ms", 2),
    ("p99_ms", "p99 ms", 2),
    ("avg_ms", "avg ms", 2),
    *((column, f"{component.title} ms", 3) for column, component in COMPONENTS.items()),
    ("framework_avg_ms", "framework avg ms", 2),
    ("share_of_limit", "share of the limit", 3),
    ("limit_throughput", "limit, inferences/s", 1),
    ("limit", "limited by"),
    ("energy_j_per_1000", "J per 1000 inferences", 2),
    ("stable", "stable"),
    ("failed_checks", "failed checks"),
    ("slo_holds", "holds the objective"),
    ("request_count", "requests"),
    ("generator", "generator"),
)

PUBLISHED = _columns(
    ("cell", "cell"),
    ("scenario", "scenario"),
    ("batch", "batch"),
    ("concurrency", "concurrency"),
    ("throughput", "inferences/s", 1),
    ("published", "NVIDIA's inferences/s", 1),
    ("ratio", "ratio", 2),
    ("p99_ms", "p99 ms", 2),
    ("published_p99_ms", "NVIDIA's p99 ms", 2),
    ("differs", "differences"),
)

MOVES = _columns(
    ("to", "in campaign"),
    ("cell", "cell"),
    ("what", "figure"),
    ("before", "from"),
    ("after", "to"),
    ("by", "by"),
    ("changed_with_it", "settings that changed"),
)
TRAIL = _columns(
    *(("campaign", "campaign"), ("when", "started"), ("cell", "cell"), ("gpu", "GPU")),
    *(("scenario", "scenario"), ("batch", "batch"), ("load", "load")),
    *(("throughput", "inferences/s", 1), ("p99_ms", "p99 ms", 2), ("change", "change", 3)),
)

ELSEWHERE = frozenset(
    {
        *("campaign", "profile", "cpu", "host", "variant", "parameters", "versions", "environment"),
        *("model_digest", "settings"),
        *("export_format", "export_precision", "accelerator", "accelerator_precision", "opset", "torch_jit"),
        *("triton_release", "random_weights", "static", "dynamic", "offline", "online", "server", "backend"),
        *("server_version", "batching", "max_batch_size", "preferred_batch_sizes", "max_queue_delay_us"),
        *("instances", "device_kind", "protocol", "cuda_graph", "cores_awake", "warm_up_batch_sizes"),
        *(
            "load_timeout_s",
            "shared_memory",
            "input_data",
            "warm_up",
            "minimum_request_count",
            "minimum_window_s",
        ),
        *("generator_version", "flops_per_inference", "load_clients", "load_batches"),
        *("card_uuid", "flow_run", "worker", "worker_pid", "started_at", "ended_at", "waits"),
        *(name for name in (*LOAD, *TRUST) if name not in ("request_rate", "slo_holds", "failed_checks")),
        "load",
        *("windows_throughput", "windows_avg_ms", "stage_s", "server_s", "orchestration_s", "metrics"),
        *("proof_share", "not_finite"),
        *FILTERS,
    }
)
"""Columns of the parameters' tables, and columns that only the Parquet files have."""


def shown(frame: pl.DataFrame, named: tuple[Column, ...]) -> tuple[Column, ...]:
    """The columns of a table that have a value: the named ones first, then columns that no list names."""
    known = {column.name for column in named} | ELSEWHERE
    if named is POINTS:
        known |= {"load_s", "first_request_ms"}  # of the cell, not of a point
    unnamed = [
        Column(name=name, title=name.replace("_", " "), digits=3 if dtype.is_float() else None)
        for name, dtype in frame.schema.items()
        if name not in known
    ]
    measured = {name for name in frame.columns if frame[name].null_count() < frame.height}
    return tuple(column for column in (*named, *unnamed) if column.name in measured)
