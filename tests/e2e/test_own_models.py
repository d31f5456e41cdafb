"""Models that are no folder of ours: a model file, and a folder in the published style."""

from __future__ import annotations

import json
import re
from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto as T
from onnx import helper
from sklearn.metrics import f1_score

from servegrid.campaign.layout import CampaignLayout

pytestmark = pytest.mark.check

PUBLISHED = Path(__file__).parents[1] / "published"
SMALL = (
    *("--max-batch-size", "2", "--max-concurrency", "1", "--generator", "client"),
    *("--window-s", "0.3", "--request-count", "10"),
)


def write_net(path: Path, batch: Any = "n") -> None:
    """x [batch, 6] -> y [batch, 3]: a softmax of a linear map."""
    weights = np.random.default_rng(0).normal(size=(6, 3)).astype(np.float32)
    graph = helper.make_graph(
        [helper.make_node("MatMul", ["x", "w"], ["h"]), helper.make_node("Softmax", ["h"], ["y"])],
        "g",
        [helper.make_tensor_value_info("x", T.FLOAT, [batch, 6])],
        [helper.make_tensor_value_info("y", T.FLOAT, [batch, 3])],
        [onnx.numpy_helper.from_array(weights, "w")],
    )
    opsets = [helper.make_opsetid("", 17)]
    onnx.save(helper.make_model(graph, opset_imports=opsets, ir_version=9), path)


def test_onnx_file_is_served_and_measured(command: Any, tmp_path: Path) -> None:
    write_net(tmp_path / "my net.onnx")
    x = np.random.default_rng(1).normal(size=(20, 6)).astype(np.float32)
    np.savez(tmp_path / "samples.npz", x=x)
    arguments = ("--onnx", str(tmp_path / "my net.onnx"), "--samples", str(tmp_path / "samples.npz"))
    code, output = command.run("sweep", *arguments, "--precision", "fp32", *SMALL)
    assert code == 0, output
    (cell,) = (row for row in command.rows() if row["kind"] == "cell")
    digest = sha256((tmp_path / "my net.onnx").read_bytes()).hexdigest()
    assert cell["cell"] == f"my_net-file-{digest[:8]}-onnx-fp32-b2-c1"
    assert cell["model_digest"] == digest
    assert cell["verdict"] in ("measured", "unstable")  # how steady it is depends on what else runs
    assert cell["largest_difference"] < 1e-5
    files = CampaignLayout(folder=command.campaign).profile("cpu")
    with np.load(files.predictions(cell["cell"]) / "served.npz") as served:
        weights = np.random.default_rng(0).normal(size=(6, 3)).astype(np.float32)
        logits = np.exp(x @ weights)
        np.testing.assert_allclose(served["y"], logits / logits.sum(axis=1, keepdims=True), atol=1e-5)


def test_labels_and_samples_let_a_file_pass_and_be_recommended(command: Any, tmp_path: Path) -> None:
    write_net(tmp_path / "net.onnx")
    weights = np.random.default_rng(0).normal(size=(6, 3)).astype(np.float32)
    rng = np.random.default_rng(1)
    x = rng.normal(size=(90, 6)).astype(np.float32)
    labels = (x @ weights + rng.normal(size=(90, 3))).argmax(axis=1)
    np.savez(tmp_path / "samples.npz", x=x)
    (tmp_path / "labels.csv").write_text("label\n" + "\n".join(map(str, labels)))
    own = ("--samples", str(tmp_path / "samples.npz"), "--labels", str(tmp_path / "labels.csv"))
    net = ("--onnx", str(tmp_path / "net.onnx"), "--precision", "fp32")
    code, output = command.run("sweep", *net, *own, "--metric", "f1_macro", *SMALL)
    assert code == 0, output
    (cell,) = (row for row in command.rows() if row["kind"] == "cell")
    assert cell["verdict"] in ("passed", "unstable")
    assert (cell["metric"], cell["metric_reference"]) == ("f1_macro", "labels")
    expected = f1_score(labels, (x @ weights).argmax(axis=1), average="macro")
    assert cell["framework_metric"] == pytest.approx(expected, abs=5e-5)
    assert cell["served_metric"] == pytest.approx(expected, abs=5e-5)
    assert cell["shuffled_metric"] < 0.5
    if cell["verdict"] == "passed":
        assert f"Best offline throughput: {cell['cell']}" in output
    code, output = command.run("bundle", cell["cell"], str(tmp_path / "bundle"))
    assert code == 0, output
    certificate = json.loads((tmp_path / "bundle" / "certificate.json").read_text())
    assert certificate["metric_reference"] == "labels"
    assert "labels" in certificate["means"]


def test_agreement_on_random_samples_is_measured(command: Any, tmp_path: Path) -> None:
    write_net(tmp_path / "net.onnx")
    net = ("--onnx", str(tmp_path / "net.onnx"), "--precision", "fp32")
    code, output = command.run("sweep", *net, "--metric", "agreement", *SMALL)
    assert code == 0, output
    (cell,) = (row for row in command.rows() if row["kind"] == "cell")
    assert cell["verdict"] in ("measured", "unstable")
    assert (cell["metric"], cell["metric_reference"]) == ("agreement", "framework")
    assert cell["served_metric"] == 1
    if cell["verdict"] == "measured":
        assert "--samples" in cell["reason"]


def test_onnx_file_with_a_fixed_first_axis_is_served_without_batching(command: Any, tmp_path: Path) -> None:
    write_net(tmp_path / "fours.onnx", batch=4)
    asked = ("--onnx", str(tmp_path / "fours.onnx"), "--precision", "fp32")
    code, output = command.run("sweep", *asked, *SMALL)
    assert code == 0, output
    rows = command.rows()
    (cell,) = (row for row in rows if row["kind"] == "cell")
    assert cell["verdict"] in ("measured", "unstable")
    assert cell["largest_difference"] < 1e-5
    measured = [row for row in rows if row["kind"] == "measurement"]
    assert {(row["scenario"], row["batching"], row["max_batch_size"], row["batch"]) for row in measured} == {
        ("offline", "disabled", 0, 4), ("online", "disabled", 0, 4),
    }  # fmt: skip


NET = """
import sys, torch
weights = torch.nn.Linear(6, 3, bias=False)
torch.jit.trace(torch.nn.Sequential(weights, torch.nn.Softmax(1)).eval(), torch.ones(2, 6)).save(sys.argv[1])
"""


def test_torchscript_file_is_sent_to_a_server_that_runs_already(
    command: Any, start: Any, run_python: Any, tmp_path: Path
) -> None:
    run_python(NET, tmp_path / "net.pt")
    (tmp_path / "headers").write_text("Authorization: Bearer s3cret\n")
    (tmp_path / "server").mkdir()
    with start(tmp_path / "server") as triton:
        net = ("--torchscript", str(tmp_path / "net.pt"), "--shape", "input=1,6", "--precision", "fp32")
        server = ("--server", "remote", "--url", f"grpc://{triton.running.grpc_url}")
        headers = ("--headers-file", str(tmp_path / "headers"))
        code, output = command.run("sweep", *net, *server, *headers, *SMALL)
        assert code == 0, output
        assert not triton.stubs(), "the model is taken away again"
    rows = command.rows()
    (cell,) = (row for row in rows if row["kind"] == "cell")
    assert re.fullmatch("net-file-[0-9a-f]{8}-ts-trace-fp32-b2-c1", cell["cell"])
    assert cell["verdict"] in ("measured", "unstable")
    assert cell["largest_difference"] < 1e-5
    assert {(row["server"], row["server_version"]) for row in rows} == {("remote", "2.51.0")}
    written = [path for path in command.campaign.rglob("*") if path.is_file()]
    assert not [path for path in written if b"s3cret" in path.read_bytes()]
    assert "s3cret" not in output


def test_published_folder_passes(command: Any) -> None:
    code, output = command.run(
        "sweep", "--model-dir", str(PUBLISHED / "triton"), "--plugin-path", str(PUBLISHED / "library"),
        "--param", "hidden=8", "--param", "steps=300", "--format", "onnx", *SMALL,
    )  # fmt: skip
    assert code == 0, output
    (cell,) = (row for row in command.rows() if row["kind"] == "cell")
    assert cell["cell"] == "published_mlp-full-onnx-fp32-b2-c1"
    assert cell["verdict"] in ("passed", "unstable")
    assert cell["framework_metric"] == cell["served_metric"] > 0.95
    assert cell["shuffled_metric"] < 0.8


def test_error_leaves_nothing_and_exits_2(make_command: Any, plugins: Path, tmp_path: Path) -> None:
    command = make_command(plugins, own_store=True)
    (tmp_path / "page.onnx").write_text("<!doctype html>")
    code, output = command.run("sweep", "--onnx", str(tmp_path / "page.onnx"))
    assert code == 2
    assert output.startswith(f"servegrid: --onnx {tmp_path / 'page.onnx'}: a web page")
    assert output.count("\n") == 1
    assert not command.site.results.exists()
    kept = [p for p in (command.site.home / "store").rglob("*") if p.is_file() and p.suffix != ".lock"]
    assert not kept
