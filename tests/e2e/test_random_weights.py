"""A variant without its checkpoint: exported, served and measured with random weights."""

from __future__ import annotations

import json
from typing import Any

import pytest

pytestmark = pytest.mark.check


def test_random_weights_need_no_files_and_end_as_measured(command: Any, api: Any) -> None:
    arguments = ("--model", "tiny_mlp", "--variant", "full", "--format", "onnx", "--random-weights")
    short = ("--generator", "client", "--window-s", "0.3", "--request-count", "10")
    code, output = command.run("sweep", *arguments, "--max-batch-size", "2", *short)
    assert code == 0, output
    assert "peak memory" in output
    rows = command.rows()
    (cell,) = (row for row in rows if row["kind"] == "cell")
    assert cell["verdict"] in ("measured", "unstable")  # how steady it is depends on what else runs
    assert cell["random_weights"]
    assert cell["server_peak_bytes"] > 10e6
    assert "metric" not in cell
    assert json.loads(cell["static"])["max_batch_size"] == 2
    assert {row["scenario"] for row in rows if row["kind"] == "measurement"} == {"offline", "online"}
    report = (command.campaign / "report.md").read_text()
    assert "Nothing: no cell passed" in report  # what is only measured is never shipped
    names = [run["name"] for run in api.task_runs("tiny_mlp") if run["name"].endswith(cell["cell"])]
    assert not [name for name in names if name.startswith("prepare")]
