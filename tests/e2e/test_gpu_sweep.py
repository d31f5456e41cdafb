"""A short sweep on this host's NVIDIA GPU: cells are built, served from the card, proven and measured."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from google.protobuf import text_format
from tritonclient.grpc import model_config_pb2 as pb

from servegrid.campaign.layout import CampaignLayout
from servegrid.domain.plugins import load_profile
from servegrid.domain.root import ROOT
from servegrid.host.cards import gpu_names
from servegrid.host.environment import matches

pytestmark = pytest.mark.gpu

ASKED = ("--format", "ts-trace", "--format", "onnx", "--precision", "fp32", "--precision", "fp16")
LIMITS = ("--accelerator", "none", "--max-batch-size", "4", "--max-concurrency", "4", "--fixed-points")


@pytest.fixture(scope="module")
def profile() -> str:
    """The profile of this host's card."""
    folder = ROOT / "gpu_profiles"
    profiles = [load_profile(folder, path.stem) for path in sorted(folder.glob("*.yaml"))]
    found = [p.name for p in profiles if p.device_kind == "gpu" and matches(p)]
    if not found:
        pytest.skip(f"no file of gpu_profiles/ describes {gpu_names()[0]}")
    return found[0]


def test_every_cell_is_right_on_the_card(profile: str, make_command: Callable[[Path], Any]) -> None:
    command = make_command(ROOT / "models")
    code, output = command.run("sweep", "--profile", profile, *ASKED, *LIMITS, timeout=500)
    assert code == 0, output
    cells = pl.read_parquet(command.campaign / "cells.parquet")
    assert len(cells) == 4
    assert set(cells["verdict"]) <= {"passed", "unstable"}, cells["reason"].to_list()
    assert set(cells["gpu"]) == {gpu_names()[0]}
    files = CampaignLayout(folder=command.campaign).profile(cells["profile"][0])
    for name in cells["cell"]:
        text = (files.repository(name) / "bert_large_qa" / "config.pbtxt").read_text()
        config = text_format.Parse(text, pb.ModelConfig())
        assert config.instance_group[0].kind == pb.ModelInstanceGroup.KIND_GPU
        assert "pipelined" in config.parameters
    points = pl.read_parquet(command.campaign / "measurements.parquet")
    assert len(points) == 4 * 4
    assert {json.loads(row)["torch"] for row in cells["versions"]} != {"absent"}
