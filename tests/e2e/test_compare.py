"""`servegrid compare --run` for real: both cells built, served at once and measured in interleaved runs."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

from servegrid.campaign.layout import CampaignLayout

pytestmark = pytest.mark.check

CELL = "tiny_mlp-tiny-onnx-fp32"


def test_a_cell_against_itself_at_every_point(command: Any, tmp_path: Path) -> None:
    form = tmp_path / "junit.xml"
    code, output = command.run("compare", CELL, CELL, "--run", "--pairs", "2", "--junit", str(form))
    assert code == 0, output
    assert "from 2 pairs" in output
    (case,) = ElementTree.parse(form).getroot().findall("testcase")  # noqa: S314  # our own
    assert case.get("name") == CELL
    logs = CampaignLayout(folder=command.campaign).profile("cpu").logs
    orders = sorted(logs.glob("*.runs.json"))
    points = {
        (order["batch"], order["concurrency"]) for order in map(json.loads, map(Path.read_text, orders))
    }
    text = case.findtext("system-out") or ""
    assert text.count("p50_ms") == len(orders) == 2
    assert {f"batch {batch} x {concurrency}" in text for batch, concurrency in points} == {True}
    order = json.loads(orders[0].read_text())
    assert order["a"]["endpoint"]["grpc_url"] != order["b"]["endpoint"]["grpc_url"]
