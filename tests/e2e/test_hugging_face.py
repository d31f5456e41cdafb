"""Hugging Face folders from the command to a bundle that answers a text."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

from servegrid.campaign.layout import CampaignLayout
from servegrid.domain.root import ROOT
from servegrid.host import proc
from servegrid.servers.launch import free_ports

MAKE = ROOT / "tests" / "hugging_face" / "make_folder.py"
SMALL = (
    *("--format", "ts-trace", "--format", "onnx", "--precision", "fp32", "--generator", "client"),
    *("--max-batch-size", "2", "--max-concurrency", "1", "--window-s", "0.3", "--request-count", "10"),
)


def sweep(command: Any, folder: Path, kind: str, steps: int, *, metric: str | None = None) -> dict[str, Any]:
    """Cell -> its row, of the campaign of a folder that is made here; `metric`: of its labels."""
    subprocess.run([sys.executable, "-W", "ignore", MAKE, folder, str(steps), kind], check=True, timeout=300)
    samples = next(
        path for path in (folder / kind / "samples", folder / kind / "samples.jsonl") if path.exists()
    )
    model = (folder / kind / "model").rename(folder / kind / kind)
    labels = ("--labels", str(folder / kind / "labels.npz"), "--metric", metric) if metric else ()
    code, output = command.run("sweep", "--hf", str(model), "--samples", str(samples), *labels, *SMALL)
    assert code == 0, output
    rows = {row["cell"]: row for row in command.rows() if row["kind"] == "cell"}
    names = {re.sub("-hf-[0-9a-f]{8}-", "-hf-", name) for name in rows}
    assert names == {f"{kind}-hf-{format_}-fp32-b2-c1" for format_ in ("ts-trace", "onnx")}
    for row in rows.values():  # how steady it is depends on what else runs
        assert row["verdict"] in ("passed" if metric else "measured", "unstable"), row["reason"]
    return rows


def predictions(command: Any, cell: str) -> tuple[dict[str, Any], dict[str, Any]]:
    """The framework's and the served outputs."""
    folder = CampaignLayout(folder=command.campaign).profile("cpu").predictions(cell)
    with np.load(folder / "framework.npz") as framework, np.load(folder / "served.npz") as served:
        return dict(framework), dict(served)


@pytest.mark.check
def test_folder_is_served_right_and_its_bundle_answers_a_text(command: Any, tmp_path: Path) -> None:
    kind = "sequence_classification"
    rows = sweep(command, tmp_path, kind, steps=300, metric="accuracy")
    with np.load(tmp_path / kind / "labels.npz") as file:
        labels = file["logits"]
    for cell in rows:
        framework, served = predictions(command, cell)
        assert np.abs(framework["logits"] - served["logits"]).max() < 1e-3
        assert (served["logits"].argmax(1) == labels).mean() > 0.9
        assert rows[cell]["served_metric"] == pytest.approx((served["logits"].argmax(1) == labels).mean())
    (fused,) = (name for name in rows if "-onnx-" in name)
    bundle = tmp_path / "bundle"
    code, output = command.run("bundle", fused, str(bundle))
    assert code == 0, output
    (graph,) = (bundle / "model_repository").rglob("model.onnx")
    operators = [node.op_type for node in onnx.load(str(graph)).graph.node]
    assert operators.count("Attention") == 2
    assert not list((bundle / "model").rglob("*.safetensors"))
    names = ("HTTP_PORT", "GRPC_PORT", "METRICS_PORT")
    ports = dict(zip(names, map(str, free_ports(3)), strict=True))
    start = ["sh", str(bundle / "start-embedded.sh")]
    with proc.running(start, log_path=tmp_path / "server.log", env=ports, stop_s=15):
        url = ("--url", f"127.0.0.1:{ports['GRPC_PORT']}")
        client = [sys.executable, bundle / "client.py", *url]
        subprocess.run(client, check=True, capture_output=True, timeout=120)  # it waits for the server
        for text, label in (("kaba lefe miba nodo kagi", "YES"), ("puba rafe", "NO")):
            own = [sys.executable, bundle / "model" / "client.py", *url, "--model", kind, "--text", text]
            done = subprocess.run(own, check=True, capture_output=True, text=True, timeout=120)
            assert done.stdout == f"logits: {label}\n"


@pytest.mark.long
@pytest.mark.parametrize(
    "kind",
    [
        *("token_classification", "question_answering", "sentence_embedding", "image_classification"),
        *("clip", "audio_classification", "whisper"),
    ],
)
def test_untrained_network_agrees_with_the_framework(command: Any, tmp_path: Path, kind: str) -> None:
    for cell in sweep(command, tmp_path, kind, steps=0):
        framework, served = predictions(command, cell)
        for name, expected in framework.items():
            scale = np.abs(expected).max()
            assert np.abs(served[name] - expected).max() < 1e-3 * scale, name
            if name.endswith("logits"):
                assert (served[name].argmax(-1) == expected.argmax(-1)).mean() >= 0.99
