"""Bad input and bad luck, as a user of the command meets them."""

from __future__ import annotations

import re
import shutil
import signal
import subprocess
import time
from pathlib import Path
from typing import Any

import psutil
import pytest

from servegrid.campaign import leases
from servegrid.domain.root import ROOT

pytestmark = pytest.mark.check

SWEEP = (
    *("sweep", "--model", "tiny_mlp", "--generator", "client"),
    *("--window-s", "0.3", "--request-count", "10"),
)
"""Two cells, in short windows."""
MEASURED = ("passed", "unstable")
"""Verdicts of a correct cell: how steady its one point is depends on what else the machine does."""


def of_site(command: Any, name: str = "") -> list[psutil.Process]:
    """Live processes that were started for this site, and whose command line has `name` in it."""
    found = []
    for process in psutil.process_iter():
        try:
            line = " ".join(process.cmdline())
            ours = process.environ().get("SERVEGRID_HOME") == str(command.site.home)
        except (psutil.Error, OSError):
            continue
        if ours and name in line and process.status() != psutil.STATUS_ZOMBIE:
            found.append(process)
    return found


def tritonserver(command: Any) -> psutil.Process | None:
    for process in of_site(command, "--model-repository"):
        if process.name() == "tritonserver":
            return process
    return None


def measuring(command: Any) -> bool:
    return bool(of_site(command, "servegrid.loadgen.client.process"))


def shm_prefix(command: Any) -> str:
    """How the shared memory of the running server and of its clients is named."""
    server = tritonserver(command)
    assert server is not None
    (found,) = re.findall(r"shm-region-prefix-name=(\w+)", " ".join(server.cmdline()))
    return str(found)


def regions(prefix: str) -> set[str]:
    return {path.name for path in Path("/dev/shm").glob(f"{prefix}*")}


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["--model", "tiny_mpl"], "unknown model"),
        (["--model", "tiny_mpl"], "did you mean 'tiny_mlp'?"),
        (["--format", "onxx"], "(found 'onxx'): did you mean 'onnx'?"),
        (["--precision", "fp23"], "(found 'fp23'): did you mean 'fp32' or 'fp16'?"),
        (["--profile", "cpv"], "did you mean 'cpu'?"),
        (["--variant", "tyni"], "did you mean 'tiny'?"),
        (["--generator", "wrk"], "generator: Input should be 'auto', 'perf_analyzer' or 'client'"),
    ],
)
def test_an_unknown_name_is_one_line_with_the_nearest_and_exit_code_2(
    command: Any, arguments: list[str], expected: str
) -> None:
    model = [] if "--model" in arguments else ["--model", "tiny_mlp"]
    code, output = command.run("sweep", *model, *arguments)
    assert code == 2
    assert expected in output
    assert len(output.splitlines()) == 1
    assert not command.site.results.exists()


def test_a_wrong_key_in_model_yaml_is_named_with_its_file(command: Any, plugins: Path, edit: Any) -> None:
    path = plugins / "tiny_mlp" / "model.yaml"
    edit(path, "opset: 13", "opsett: thirteen")
    code, output = command.run("sweep", "--model", "tiny_mlp")
    assert code == 2
    assert str(path) in output
    assert "opsett: no such key" in output
    assert "opset: this key is required" in output


def test_files_that_a_variant_wants_are_named_before_any_work(make_command: Any) -> None:
    command = make_command(ROOT / "models")
    code, output = command.run("sweep", "--model", "bert_large_qa", "--variant", "full")
    assert code == 2
    for name in ("bert_large_qa.pt", "bert_config.json", "vocab.txt", "dev-v1.1.json"):
        assert str(command.site.sources / "bert_large_qa" / name) in output
    assert "NGC" in output
    assert not command.site.results.exists()


def test_a_missing_server_is_refused_before_any_work(command: Any) -> None:
    (command.site.home / "tritonserver").unlink()
    code, output = command.run("sweep", "--model", "tiny_mlp")
    assert code == 2
    assert "servegrid doctor --install-server" in output
    assert not command.site.results.exists()


def test_a_plugin_that_raises_ends_one_cell_which_its_pack_repeats_and_the_others_go_on(
    command: Any,
    plugins: Path,
    tmp_path: Path,
    edit: Any,
) -> None:
    edit(
        plugins / "tiny_mlp" / "model.py",
        "    return module, ",
        "    class Picky(torch.nn.Module):\n"
        "        def __init__(self, inner):\n"
        "            super().__init__()\n"
        "            self.inner = inner\n"
        "        def forward(self, x):\n"
        "            if torch.onnx.is_in_onnx_export():\n"
        "                raise RuntimeError('this network hates ONNX')\n"
        "            return self.inner(x)\n"
        "    module = Picky(module).eval()\n"
        "    return module, ",
    )
    code, output = command.run(*SWEEP)
    assert code == 1, output
    cells = {row["format"]: row for row in command.rows() if row["kind"] == "cell"}
    assert cells["ts-trace"]["verdict"] in MEASURED
    assert cells["onnx"]["verdict"] == "error"
    log = Path(cells["onnx"]["log"]).read_text()
    assert "this network hates ONNX" in log
    assert "Traceback" in log
    assert "model.py" in log
    assert "-m servegrid.frameworks" in cells["onnx"]["command"]
    assert (command.campaign / "report.html").exists()

    code, output = command.run("bundle", cells["onnx"]["cell"], str(tmp_path / "failure"))
    assert code == 0, output
    shutil.rmtree(command.campaign)
    shutil.rmtree(plugins)
    again = subprocess.run(
        ["sh", str(tmp_path / "failure" / "repeat.sh")], capture_output=True, text=True, timeout=120
    )
    assert again.returncode == 1
    assert "this network hates ONNX" in again.stderr


def test_a_server_killed_in_mid_measurement_costs_one_cell(command: Any, wait_for: Any) -> None:
    process = command.start(*SWEEP)
    wait_for(lambda: measuring(command), 120)
    first, prefix = tritonserver(command), shm_prefix(command)
    assert first is not None
    assert regions(prefix)
    killed = time.monotonic()
    first.kill()
    wait_for(command.rows, 30)
    assert time.monotonic() - killed < 10
    output, _ = process.communicate(timeout=200)
    assert process.returncode == 1, output
    verdicts = [row["verdict"] for row in command.rows() if row["kind"] == "cell"]
    assert verdicts[0] == "error", output
    (cell, *_) = (row for row in command.rows() if row["kind"] == "cell")
    assert cell["log"].endswith("tritonserver.log") and cell["log"] in cell["reason"]
    assert verdicts[1] in MEASURED, output
    assert of_site(command) == []
    assert not regions(prefix)


def test_ctrl_c_keeps_finished_rows_and_leaves_nothing_behind(command: Any, wait_for: Any) -> None:
    process = command.start(*SWEEP)
    wait_for(command.rows, 200)
    wait_for(lambda: measuring(command), 120)
    prefix = shm_prefix(command)
    process.send_signal(signal.SIGINT)
    output, _ = process.communicate(timeout=60)
    assert process.returncode == 130, output
    assert "interrupted" in output
    cells = [row for row in command.rows() if row["kind"] == "cell"]
    assert cells[0]["verdict"] in MEASURED
    assert [cell["verdict"] for cell in cells[1:]] == ["skipped"]
    assert (command.campaign / "cells.parquet").exists()
    wait_for(lambda: not of_site(command), 10)
    assert not regions(prefix)

    name = command.campaign.name
    code, output = command.run("report", name)
    assert code == 2
    assert "1 cells have not run" in output
    code, output = command.run("report", name, "--partial")
    assert code == 0, output
    assert "partial: 1 cells have not run" in output
    assert f"| {cells[0]['cell']} | {cells[0]['verdict']} |" in (command.campaign / "report.md").read_text()
    with leases.holding(command.campaign / "leader.lock", "1", wait_s=0):  # as if it ran elsewhere
        code, output = command.run("sweep", "--resume", name)
    assert code == 2, output
    assert f"campaign {name} is running already, attempt 1" in output
    assert "est online throughput:" not in output
    code, output = command.run("sweep", "--resume", name)
    assert code == 0, output
    assert [path.name for path in command.site.results.iterdir()] == [name]
    again = [row for row in command.rows() if row["kind"] == "cell"][len(cells) :]
    assert [row["cell"] for row in again] == [cells[1]["cell"]], "the finished cell was left as it was"
    assert again[0]["verdict"] in MEASURED
    code, output = command.run("report", name)
    assert code == 0, output


def test_a_killed_command_leaves_nothing_behind(command: Any, wait_for: Any) -> None:
    process = command.start(*SWEEP)
    wait_for(lambda: measuring(command), 200)
    prefix = shm_prefix(command)
    process.kill()
    process.communicate(timeout=30)
    wait_for(lambda: not of_site(command), 15)
    wait_for(lambda: not regions(prefix), 5)
