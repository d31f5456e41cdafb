"""Where the files of a campaign lie, of today's and of older ones."""

from __future__ import annotations

from pathlib import Path

from servegrid.campaign.layout import CampaignLayout, ProfileLayout


def test_each_profile_has_a_folder_whatever_their_number(tmp_path: Path) -> None:
    layout = CampaignLayout(folder=tmp_path)
    assert layout.profile("cpu").logs == tmp_path / "cpu" / "logs"
    assert layout.profile("t4").repository("a") == tmp_path / "t4" / "repositories" / "a"
    assert layout.written("cpu", "a") == layout.profile("cpu")


def test_files_of_an_older_campaign_are_found_directly_below_it(tmp_path: Path) -> None:
    layout, older = CampaignLayout(folder=tmp_path), ProfileLayout(folder=tmp_path)
    older.repository("served").mkdir(parents=True)
    older.logs.mkdir()
    (older.logs / "failed.prepare.log").touch()
    assert layout.written("cpu", "served") == layout.written("cpu", "failed") == older


def test_resumed_older_campaign_has_files_in_both_places(tmp_path: Path) -> None:
    layout = CampaignLayout(folder=tmp_path)
    for files, cells in ((ProfileLayout(folder=tmp_path), "ab"), (layout.profile("cpu"), "b")):
        for cell in cells:
            files.repository(cell).mkdir(parents=True)
    assert layout.written("cpu", "a").folder == tmp_path
    assert layout.written("cpu", "b").folder == tmp_path / "cpu"
