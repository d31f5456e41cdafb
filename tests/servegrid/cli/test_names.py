"""The commands without a name, and with a misspelt one."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from servegrid.campaign.columns import MEASURED
from servegrid.campaign.layout import CampaignLayout
from servegrid.campaign.results import Row, Writer

ENVIRONMENT = '{"cores": 2, "memory_gb": 24, "system": "Linux", "python": "3.11.2"}'
Run = Callable[..., tuple[int, str]]
CELL: Row = {
    **{"profile": "cpu", "model": "toy", "format": "onnx", "precision": "fp32", "backend": "hosted"},
    **{"triton_release": "24.10", "versions": "{}", "environment": ENVIRONMENT, "stage_s": "{}"},
    **{"dynamic": '{"device_kind": "cpu"}', "largest_difference": 0.5},
}
POINT: Row = {
    **{"profile": "cpu", "model": "toy", "format": "onnx", "precision": "fp32", "parameters": "{}"},
    **{"instances": 1, "batch": 1, "concurrency": 1, "scenario": "offline", "stable": True},
    **dict.fromkeys(MEASURED, 1.0),
}


def campaign(home: Path, name: str, age_s: int, verdicts: dict[str, str]) -> None:
    """A campaign whose cells ended so, the first of them the fastest, with what a bundle of each holds."""
    folder = home / "results" / name
    writer = Writer(folder)
    for place, (cell, verdict) in enumerate(verdicts.items()):
        writer.append("cell", CELL | {"campaign": name, "cell": cell, "verdict": verdict})
        writer.append("measurement", POINT | {"campaign": name, "cell": cell, "throughput": 100.0 - place})
        files = CampaignLayout(folder=folder).profile("cpu")
        (files.repository(cell) / "toy").mkdir(parents=True)
        predictions = files.predictions(cell)
        predictions.mkdir(parents=True)
        np.savez(predictions / "inputs.npz", x=np.ones((2, 3)))
        np.savez(predictions / "framework.npz", y=np.ones((4, 2)))
    then = (folder / "rows.jsonl").stat().st_mtime - age_s
    os.utime(folder / "rows.jsonl", (then, then))


@pytest.fixture
def campaigns(home: Path) -> None:
    """By their names the first is the newest; by their rows the second is, and it recommends nothing."""
    campaign(home, "z-old", 20, {"toy-trt": "passed"})
    campaign(home, "a-new", 0, {"toy-onnx": "measured", "toy-aoti": "error"})
    campaign(home, "m-passed", 10, {"toy-onnx": "passed", "toy-int8": "passed"})


@pytest.mark.usefixtures("campaigns")
def test_report_without_a_name_is_of_the_newest_campaign(servegrid: Run, home: Path) -> None:
    code, output = servegrid("report")
    assert code == 0 and "a-new" in output.splitlines()[0]
    assert [path.parent.name for path in home.rglob("report.html")] == ["a-new"]


@pytest.mark.usefixtures("campaigns")
def test_bundle_without_a_cell_has_the_newest_recommended_cell(servegrid: Run, tmp_path: Path) -> None:
    code, output = servegrid("bundle")
    assert code == 0, output
    assert "m-passed" in output and "toy-onnx" in output
    certificate = json.loads((tmp_path / "toy-onnx" / "certificate.json").read_text())
    assert (certificate["cell"], certificate["campaign"]) == ("toy-onnx", "m-passed")
    code, output = servegrid("bundle")
    assert code == 2 and str(tmp_path / "toy-onnx") in output, "nothing is written over"


@pytest.mark.usefixtures("campaigns")
def test_bundle_of_a_campaign_or_profile_has_its_recommended_cell(servegrid: Run, tmp_path: Path) -> None:
    assert servegrid("bundle", "--campaign", "z-old")[0] == 0
    assert (tmp_path / "toy-trt" / "certificate.json").is_file()
    for words in (("--campaign", "a-new"), ("--profile", "t4")):
        code, output = servegrid("bundle", *words)
        assert code == 2 and words[1] in output and "servegrid bundle CELL" in output


@pytest.mark.usefixtures("campaigns")
def test_bundle_without_a_folder_is_named_after_the_cell_and_is_of_the_newest_passed_one(
    servegrid: Run, tmp_path: Path
) -> None:
    code, output = servegrid("bundle", "toy-onnx")
    assert code == 0 and "m-passed" in output and "passed)" in output
    assert (tmp_path / "toy-onnx" / "certificate.json").is_file()


@pytest.mark.parametrize("command", ["report", "bundle"])
def test_missing_campaigns_are_named_with_the_command_that_makes_one(
    command: str, servegrid: Run, home: Path
) -> None:
    code, output = servegrid(command)
    assert (code, len(output.splitlines())) == (2, 1)
    assert str(home / "results") in output and "servegrid sweep" in output
    assert not home.exists()


CELL_NAME = "bert_large_qa-tiny-onnx-fp32"
MISSPELT = {
    "report m-pased": "m-passed",
    "report a-neww --like published": "a-new",
    "report a-new --like publishd": "published",
    "bundle toy-onxn": "toy-onnx",
    "bundle toy-onxn x --campaign m-passed": "toy-onnx",
    "bundle --campaign m-pased": "m-passed",
    "bundle toy-onnx x --campaign m-pased": "m-passed",
    "bundle toy-onnx x --profile cpuu": "cpu",
    "history toy-onxn": "toy-onnx",
    "compare a-neww m-passed": "a-new",
    "compare a-new m-pased": "m-passed",
    "sweep --resume m-pased": "m-passed",
    f"why {CELL_NAME}x": CELL_NAME,
    "why bert_large_qa-tiny-onxn-fp32": CELL_NAME,
    f"why {CELL_NAME} --profile cpuu": "cpu",
    "plan --model bert_large": "bert_large_qa",
    "plan --variant tinny": "tiny",
    "plan --profile cpuu": "cpu",
    "plan --format onxn": "onnx",
    "plan --precision fp61": "fp16",
    "plan --accelerator tr": "trt",
    "plan --server dokcer": "docker",
    "plan --server docker --triton-release 25.20": "25.02",
    "plan --generator cleint": "client",
    "plan --protocol gprc": "grpc",
    "plan --shared-memory sytem": "system",
    f"tune {CELL_NAME}x --slo p99=1s": CELL_NAME,
    f"tune {CELL_NAME} --slo p99=1s --profile cpuu": "cpu",
    f"compare {CELL_NAME} {CELL_NAME}x --run": CELL_NAME,
    f"compare {CELL_NAME} {CELL_NAME} --run --profile cpuu": "cpu",
    "swep": "sweep",
    "pools crate": "create",
}


@pytest.mark.usefixtures("campaigns")
@pytest.mark.parametrize("line", MISSPELT)
def test_misspelt_name_gets_the_nearest_one(line: str, servegrid: Run, home: Path) -> None:
    (home / "results" / "m-passed" / "campaign.json").touch()
    code, output = servegrid(*line.split())
    assert code == 2
    message = " ".join(output.replace("│", " ").split()).lower()
    assert "did you mean" in message, output
    assert MISSPELT[line] in message.split("did you mean")[1].split("?")[0], output


def test_sweep_on_a_profile_that_is_misspelt_ends_before_prefect_starts(servegrid: Run, home: Path) -> None:
    code, output = servegrid("sweep", "--profile", "cpuu")
    assert code == 2 and "did you mean 'cpu'" in output and not home.exists()
