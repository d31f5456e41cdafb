"""`servegrid tune` for real: every setting of a small grid is served and measured, and the trace kept."""

from __future__ import annotations

from typing import Any

import polars as pl
import pytest

from servegrid.campaign.layout import CampaignLayout

pytestmark = pytest.mark.check

CELL = "tiny_mlp-tiny-onnx-fp32"


def test_the_trace_of_a_small_grid_is_kept(command: Any) -> None:
    bounds = ("--instances", "1", "--delay-us", "1", "--delay-us", "9000000", "--max-concurrency", "1")
    code, output = command.run("tune", CELL, "--slo", "p99=5s", *bounds)
    assert code in (0, 1), output  # 1: every point was unstable
    trace = pl.read_parquet(command.campaign / "trace.parquet")
    assert trace.height == pl.read_csv(command.campaign / "trace.csv").height
    measured = trace.filter(pl.col("throughput").is_not_null())
    assert measured["preferred_batch_sizes"].to_list() == ["", "8", "4 8"]
    assert set(measured["max_queue_delay_us"]) == {1}
    assert (measured["latency_ms"] > 0).all()
    for stable, failed in measured.select("stable", "failed_checks").iter_rows():
        assert ("stability" in failed.split()) is not stable
        assert ", ".join(failed.split()) in output
    left_out = trace.filter(pl.col("max_queue_delay_us") == 9_000_000)
    assert set(left_out["pruned"]) == {"its queue delay alone is the 5000 ms allowed"}
    log = CampaignLayout(folder=command.campaign).profile("cpu").server_log(CELL)
    assert log.stat().st_size > 0
    holds = measured["holds"].any()
    assert code == int(not holds)
    assert ("best within p99=5000ms: 1 instance(s)" in output) is holds
