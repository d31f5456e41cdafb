"""A campaign written before the three packages: its rows, report, history and comparison are read today."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from servegrid.campaign import results
from servegrid.campaign.campaign import read, unreached
from servegrid.regression.campaigns import Rule, compare, read_side
from servegrid.reporting.history import moves
from servegrid.reporting.writing import write

OLD = Path(__file__).parent / "data" / "before_the_move"


@pytest.fixture
def campaigns(tmp_path: Path) -> Path:
    """A folder of results with this campaign, twice."""
    for name in ("20261201-013844-7d28", "20261201-023844-7d29"):
        shutil.copytree(OLD, tmp_path / name)
    return tmp_path


def test_a_renamed_column_is_read_under_its_old_name() -> None:
    assert "blind_metric" in (OLD / "rows.jsonl").read_text()
    cells, measurements = results.read(OLD)
    assert cells["verdict"].to_list() == ["unstable", "passed", "unstable"]
    assert all(0 < value < 0.1 for value in cells["shuffled_metric"])
    assert measurements.height == 12


def test_report_and_history_of_an_older_campaign(campaigns: Path) -> None:
    folder = sorted(campaigns.iterdir())[0]
    assert read(folder).options.generator == "client"
    assert unreached(folder) == []
    assert "bert_large_qa-tiny-onnx-fp32" in write(folder)
    assert (folder / "report.html").is_file()
    assert moves(campaigns, None) == []


def test_older_campaigns_are_compared(campaigns: Path) -> None:
    a, b = (read_side(path.name, campaigns) for path in sorted(campaigns.iterdir()))
    found = compare(a, b, Rule())
    assert found.cells and not found.regressed
