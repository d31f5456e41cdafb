"""The trace of a tuning, in its two forms."""

from __future__ import annotations

from pathlib import Path

import polars as pl

from flows.tune import _keep
from servegrid.campaign.layout import CampaignLayout
from servegrid.loadgen.search.tuning import Setting, Trial


def test_every_trial_is_kept_with_the_checks_that_it_fails(tmp_path: Path) -> None:
    one = Setting(instances=1, preferred_batch_sizes=(4, 8), max_queue_delay_us=1)
    measured = Trial(setting=one, concurrency=2, throughput=90.5, latency_ms=4.5, stable=True, holds=True)
    doubted = measured.model_copy(update={"failed_checks": ("littles_law", "client_limited")})
    _keep([measured, doubted, Trial(setting=one, pruned="too slow")], CampaignLayout(folder=tmp_path))
    trace = pl.read_parquet(tmp_path / "trace.parquet")
    assert trace["failed_checks"].to_list() == ["", "littles_law client_limited", ""]
    assert trace["preferred_batch_sizes"].to_list() == ["4 8"] * 3
    assert trace["pruned"].to_list() == ["", "", "too slow"]
    assert (tmp_path / "trace.csv").read_text() == trace.write_csv()
