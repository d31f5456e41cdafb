"""A cell, and a writer of its rows in the test's folder."""

from __future__ import annotations

from pathlib import Path

import pytest

from servegrid.campaign.cell_writer import CellWriter
from servegrid.campaign.results import Writer
from servegrid.domain.plugins import load_profile
from servegrid.domain.releases import load_releases
from servegrid.domain.root import ROOT
from servegrid.domain.server import ServerChoice
from servegrid.domain.values import Cell
from servegrid.host.environment import host
from servegrid.plan.matrix import expand
from servegrid.plan.models import load_model
from servegrid.plan.options import SweepOptions
from servegrid.plan.selection import Selection
from servegrid.servers import embedded


@pytest.fixture(scope="session")
def cell() -> Cell:
    spec = load_model(ROOT / "models", "bert_large_qa").spec
    profile = load_profile(ROOT / "gpu_profiles", "cpu")
    return expand(
        spec,
        "tiny",
        profile,
        embedded.capabilities(ServerChoice()),
        Selection(),
        load_releases(),
    ).cells[0]


@pytest.fixture
def writer(tmp_path: Path) -> CellWriter:
    return CellWriter(Writer(tmp_path), "c1", host(), {"torch": "2.13"}, SweepOptions(), run="r1")
