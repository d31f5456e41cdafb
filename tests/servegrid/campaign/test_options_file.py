"""The options of a campaign are read back; without a file there are none; a damaged file is named."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from servegrid.campaign.options_file import campaign_options, objective
from servegrid.domain.errors import UserError


def test_options_of_a_campaign_are_read_back(tmp_path: Path) -> None:
    assert (campaign_options(tmp_path), objective(tmp_path)) == ({}, None)
    options = {"slo": "avg=0.2s", "profiles": ["cpu", "t4"]}
    (tmp_path / "campaign.json").write_text(json.dumps({"options": options, "attempt": 1}))
    assert (campaign_options(tmp_path), str(objective(tmp_path))) == (options, "avg=200ms")


@pytest.mark.parametrize("text", ["{", "[]", '{"options": 1}', '{"options": {"slo": "50ms"}}'])
def test_damaged_options_name_their_file(tmp_path: Path, text: str) -> None:
    (tmp_path / "campaign.json").write_text(text)
    with pytest.raises(UserError, match=r"campaign\.json: "):
        objective(tmp_path)
