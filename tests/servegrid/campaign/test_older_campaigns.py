"""A campaign written before the three packages: its rows, report, history and comparison are read today."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from servegrid.campaign import results
from servegrid.campaign.campaign import read, unreached
from servegrid.campaign.tables import read_parquet
from servegrid.domain.errors import UserError
from servegrid.regression.campaigns import Rule, compare, read_repeats
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
    a, b = (read_repeats(path.name, campaigns) for path in sorted(campaigns.iterdir()))
    found = compare(a, b, Rule())
    assert found.cells and not found.regressed


def with_cores_awake(folder: Path) -> Path:
    """The campaign as if it had been run with the removed option: in its options, servings and points."""
    options = json.loads((folder / "campaign.json").read_text())
    options["options"]["cores_awake"] = True
    (folder / "campaign.json").write_text(json.dumps(options))
    rows = [json.loads(line) for line in (folder / "rows.jsonl").read_text().splitlines()]
    for row in rows:
        if row["kind"] == "measurement":
            row["cores_awake"] = True
        else:
            row |= {n: json.dumps(json.loads(row[n]) | {"cores_awake": True}) for n in ("static", "dynamic")}
    (folder / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return folder


def test_campaign_with_a_removed_option_is_read_reported_and_looked_back_on(campaigns: Path) -> None:
    rest, awake = sorted(campaigns.iterdir())
    with_cores_awake(awake)
    assert "cores_awake" not in read(awake).options.model_dump()
    assert unreached(awake) == []
    assert results.read(awake)[1]["cores_awake"].all()
    assert "bert_large_qa-tiny-onnx-fp16" in write(awake)
    assert read_parquet(awake / "measurements.parquet", results.MEASUREMENTS)["cores_awake"].all()
    write(rest)
    assert moves(campaigns, None) == []


def test_campaign_with_a_removed_option_is_compared_with_its_own_kind_only(campaigns: Path) -> None:
    rest, awake = sorted(campaigns.iterdir())
    with_cores_awake(awake)
    again = with_cores_awake(Path(shutil.copytree(rest, campaigns / "again")))
    assert not compare(*(read_repeats(p.name, campaigns) for p in (awake, again)), Rule()).regressed
    with pytest.raises(UserError, match="cores_awake"):
        compare(*(read_repeats(p.name, campaigns) for p in (rest, awake)), Rule())
