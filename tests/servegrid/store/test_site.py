"""Where things lie."""

from __future__ import annotations

from pathlib import Path

import pytest

from servegrid.domain.root import ROOT
from servegrid.store.site import default_site


def test_files_are_written_inside_the_checkout(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("HOME", "RESULTS", "MODELS", "SOURCES"):
        monkeypatch.delenv(f"SERVEGRID_{name}", raising=False)
    site = default_site()
    assert (site.models, site.results) == (ROOT / "models", ROOT / "results")
    assert site.home == ROOT / ".servegrid"
    assert site.sources == ROOT / "sources"  # the user's files lie where `make clean` does not come
    assert (site.models / "bert_large_qa" / "model.yaml").is_file()
    assert (site.profiles / "cpu.yaml").is_file()


def test_environment_variables_move_the_folders(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("SERVEGRID_SOURCES", raising=False)
    monkeypatch.setenv("SERVEGRID_HOME", "relative/home")
    monkeypatch.setenv("SERVEGRID_RESULTS", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    site = default_site()
    assert site.home == tmp_path / "relative" / "home"
    assert site.store.root == site.home / "store"
    assert site.sources == ROOT / "sources"
    assert site.results == tmp_path
