"""Columns of a measured point (serving, load, figures, trust checks), and the columns that hold JSON."""

from __future__ import annotations

import json
import math
from typing import Any

import polars as pl

from servegrid.loadgen.latency import COMPONENTS

POINT_KEY = ("scenario", "batch", "concurrency", "request_rate", "distribution")
"""The key of a point of a cell: batch, and a concurrency or a request rate."""

MEASURED = {
    "throughput": "throughput",
    **{
        column: column.removesuffix("_ms")
        for column in (*COMPONENTS, "p50_ms", "p90_ms", "p95_ms", "p99_ms", "avg_ms")
    },
}
"""Our column of a measurement -> its name in the published tables (all but throughput in ms)."""

SERVING: dict[str, pl.DataType] = {
    "batching": pl.String(),
    "max_batch_size": pl.Int64(),
    "preferred_batch_sizes": pl.List(pl.Int64()),
    "max_queue_delay_us": pl.Int64(),
    "instances": pl.Int64(),
    **dict.fromkeys(("device_kind", "backend", "protocol"), pl.String()),
    **dict.fromkeys(("cuda_graph", "cores_awake"), pl.Boolean()),
    "warm_up_batch_sizes": pl.List(pl.Int64()),
    "load_timeout_s": pl.Int64(),
    **dict.fromkeys(("server", "server_version"), pl.String()),
    "load_s": pl.Float64(),
    "first_request_ms": pl.Float64(),
}

RENAMED = {"blind_metric": "shuffled_metric", "generator_bound": "client_limited"}
"""Column, or trust check, of older campaigns -> its name today."""
REMOVED: dict[str, Any] = {"cores_awake": False}
"""Column of an option that no longer exists (ADR 21) -> its value in the rows without it."""

LOAD: dict[str, pl.DataType] = {
    "request_rate": pl.Float64(),
    **dict.fromkeys(("distribution", "slo"), pl.String()),
    **dict.fromkeys(("slo_holds", "slo_best", "knee"), pl.Boolean()),
}
"""Load by a request rate, and the role of the point in its plan (`loadgen.search.points`)."""

TRUST: dict[str, pl.DataType] = {
    "failed_checks": pl.List(pl.String()),
    **dict.fromkeys(("repeats", "generator_processes"), pl.Int64()),
    **dict.fromkeys(("throughput_spread", "latency_spread"), pl.Float64()),
    **dict.fromkeys(("littles_law_residual", "component_residual_ms"), pl.Float64()),
    **dict.fromkeys(("generator_cores", "generator_lag_ms", "foreign_cores", "stolen_cores"), pl.Float64()),
    "pinned_cores": pl.List(pl.Int64()),
    "client_limited": pl.Boolean(),
    **dict.fromkeys(("sm_clock_min_mhz", "sm_clock_max_mhz", "temperature_c"), pl.Int64()),
    "power_w": pl.Float64(),
    "throttle_reasons": pl.List(pl.String()),
    **dict.fromkeys(("foreign_processes", "answers_checked"), pl.Int64()),
}
"""The trust card (`servegrid.loadgen.trust`, `servegrid.host.gpu_monitor`)."""

OBJECTS = (
    *("parameters", "versions", "environment", "static", "dynamic", "offline", "online"),
    *("metrics", "stage_s"),
)
"""Columns whose text is a JSON object; those of `metrics` and `stage_s` are of numbers."""


def holds_object(name: str, text: object) -> bool:
    """Whether a text is what the column `name` of `OBJECTS` may hold."""
    try:
        found = json.loads(text) if isinstance(text, str) else None
    except (ValueError, RecursionError):
        return False
    if not isinstance(found, dict):
        return False
    return name not in ("metrics", "stage_s") or all(isinstance(v, int | float) for v in found.values())


def parse_json(text: str | None) -> dict[str, Any]:
    """The object that a column of `OBJECTS` holds; where it is null, one without fields."""
    return dict(json.loads(text or "{}"))


def to_json(value: object, indent: int | None = None) -> str:
    """JSON text in which NaN and infinite numbers are null, because JSON has neither."""
    return json.dumps(_finite(value), indent=indent, allow_nan=False)


def _finite(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _finite(entry) for name, entry in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(entry) for entry in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def fill_old_rows(table: pl.DataFrame) -> pl.DataFrame:
    """The table with `REMOVED`'s values in place of nulls, and trust checks under their names of today."""
    filled = [pl.col(name).fill_null(value) for name, value in REMOVED.items() if name in table.columns]
    if "failed_checks" in table.columns:
        filled.append(pl.col("failed_checks").list.eval(pl.element().replace(RENAMED)))
    return table.with_columns(filled)


def point_in_words(row: dict[str, Any]) -> str:
    """The point of a row as text: scenario and load."""
    return f"{row['scenario']}, {load_in_words(row)}"


def load_in_words(row: dict[str, Any]) -> str:
    """Batch, and concurrency or request rate, as text."""
    rate = row.get("request_rate")
    load = f"x {row['concurrency']}" if rate is None else f"at {rate:g} requests/s"
    return f"batch {row['batch']} {load}"
