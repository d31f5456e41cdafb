"""Tables of campaigns, read back: which run of a cell was its last."""

from __future__ import annotations

from pathlib import Path

import polars as pl

from servegrid.campaign.results import CELLS, Row
from servegrid.campaign.tables import last_wall_s

CELL: Row = {"cell": "a", "profile": "cpu", "random_weights": False, "verdict": "passed"}


def report(results: Path, campaign: str, **row: object) -> None:
    """The tables that `servegrid report` writes for a campaign of one cell."""
    (results / campaign).mkdir(exist_ok=True)
    pl.DataFrame([CELL | row], schema=CELLS).write_parquet(results / campaign / "cells.parquet")


def test_last_run_of_a_cell_is_the_one_that_began_last(tmp_path: Path) -> None:
    report(tmp_path, "20260104", wall_s=4.0)  # older than the column `started_at`
    report(tmp_path, "nightly", wall_s=2.0, started_at="2026-01-06T01:00:00.000+00:00")
    report(tmp_path, "after-driver", wall_s=1.0, started_at="2026-01-07T01:00:00.000+00:00")
    report(tmp_path, "later", wall_s=9.0, started_at="2026-01-08T01:00:00.000+00:00", verdict="error")
    for again in ("after-driver", "nightly", "20260104"):
        (tmp_path / again / "cells.parquet").touch()
        assert last_wall_s(tmp_path) == {("a", "cpu", False): 1.0}
    for newer in ("after-driver", "nightly"):
        (tmp_path / newer / "cells.parquet").unlink()
    report(tmp_path, "20260103", wall_s=3.0)
    assert last_wall_s(tmp_path) == {("a", "cpu", False): 4.0}
