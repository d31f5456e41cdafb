"""The columns that say what a measured point is, and how far it can be trusted."""

from __future__ import annotations

import polars as pl

PLACE: dict[str, pl.DataType] = {
    "request_rate": pl.Float64(),
    **dict.fromkeys(("distribution", "slo"), pl.String()),
    **dict.fromkeys(("slo_holds", "slo_best", "knee"), pl.Boolean()),
}
"""How it was loaded, where not by a concurrency, and what it is in its plan (`tasks.loadgen.points`)."""

TRUST: dict[str, pl.DataType] = {
    "failed_checks": pl.List(pl.String()),
    **dict.fromkeys(("repeats", "generator_processes"), pl.Int64()),
    **dict.fromkeys(("throughput_spread", "latency_spread"), pl.Float64()),
    **dict.fromkeys(("littles_law_residual", "component_residual_ms"), pl.Float64()),
    **dict.fromkeys(("generator_cores", "generator_lag_ms"), pl.Float64()),
    "generator_bound": pl.Boolean(),
    **dict.fromkeys(("sm_clock_min_mhz", "sm_clock_max_mhz", "temperature_c"), pl.Int64()),
    "power_w": pl.Float64(),
    "throttle_reasons": pl.List(pl.String()),
    "foreign_processes": pl.Int64(),
}
"""The trust card (`tasks.loadgen.trust`, `tasks.core.card`)."""
