"""A cell, and a recorder of its rows in the test's folder."""

from __future__ import annotations

from pathlib import Path

import pytest

from flows.options import SweepOptions
from flows.record import Recorder
from tasks.core.environment import host
from tasks.core.matrix import expand
from tasks.core.plugins import load_model, load_profile
from tasks.core.releases import load_releases
from tasks.core.results import Writer
from tasks.core.selection import Selection
from tasks.core.site import ROOT
from tasks.core.values import Cell


@pytest.fixture(scope="session")
def cell() -> Cell:
    spec = load_model(ROOT / "models", "bert_large_qa").spec
    profile = load_profile(ROOT / "gpu_profiles", "cpu")
    return expand(
        spec,
        "tiny",
        profile,
        generator="client",
        triton_release="24.10",
        releases=load_releases(),
        selection=Selection(),
    ).cells[0]


@pytest.fixture
def recorder(tmp_path: Path) -> Recorder:
    return Recorder(Writer(tmp_path), "c1", host(), {"torch": "2.13"}, SweepOptions(), run="r1")
