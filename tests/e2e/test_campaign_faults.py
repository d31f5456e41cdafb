"""Whole campaigns on a bad day: a disk that fills up, an artifact that is gone, a Prefect server that is.
No row is lost: a cell ends with its error, or with its result once the campaign is resumed."""

from __future__ import annotations

import contextlib
import dataclasses
import subprocess
import time
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import psutil
import pytest

from flows import local_server
from servegrid.store.site import Site

pytestmark = pytest.mark.check

SMALL = ("--model", "tiny_mlp", "--generator", "client", "--max-batch-size", "2", "--max-concurrency", "1",
         "--request-count", "10", "--window-s", "0.3")  # fmt: skip
ONE = (*SMALL, "--format", "onnx")
CORRECT = ("passed", "unstable")


def measures(process: subprocess.Popen[str]) -> bool:
    """Whether the command's client is measuring."""
    for below in psutil.Process(process.pid).children(recursive=True):
        with contextlib.suppress(psutil.Error):  # it has just ended
            if "servegrid.loadgen.client.process" in " ".join(below.cmdline()):
                return True
    return False


def last_cells(command: Any) -> dict[str, dict[str, Any]]:
    """The last row of each cell."""
    return {row["cell"]: row for row in command.rows() if row["kind"] == "cell"}


def resumed(command: Any, happened: Any, planned: int) -> str:
    """Go on with the campaign: then every cell has its row, and is correct."""
    code, output = command.run("sweep", "--resume", command.campaign.name)
    assert code == 0, output
    cells = last_cells(command)
    assert {row["verdict"] for row in cells.values()} <= set(CORRECT)
    assert (command.campaign / "report.html").is_file()
    happened.rows(planned=planned, kept=len(cells))
    return output


@pytest.mark.fault(
    "Disks", "every cell ends `error`, and says so; resumed, all pass", what="full while a campaign builds"
)
def test_disk_that_is_full_while_building(make_command: Any, plugins: Path, disk: Any, happened: Any) -> None:
    command = make_command(plugins, own_store=True)
    (command.site.home / "store").symlink_to(disk.path)
    disk.fill()
    code, output = command.run("sweep", *ONE)
    assert code == 1, output
    cells = last_cells(command)
    happened.rows(planned=1, kept=len(cells))
    for row in cells.values():
        assert row["verdict"] == "error"
        assert "No space left on device" in row["reason"]
    assert (command.campaign / "report.html").is_file()
    disk.free()
    resumed(command, happened, 1)
    happened(row["reason"].splitlines()[-1])


@pytest.mark.long
@pytest.mark.fault(
    "Disks", "the command says so; resumed, every cell has its row", what="full while a campaign measures"
)
def test_disk_that_fills_up_while_measuring(command: Any, disk: Any, happened: Any, wait_for: Any) -> None:
    results = disk.path / "results"
    command = dataclasses.replace(
        command,
        site=command.site.model_copy(update={"results": results}),
        env=command.env | {"SERVEGRID_RESULTS": str(results)},
    )
    process = command.start("sweep", *ONE)
    wait_for(lambda: measures(process), 200)
    disk.fill()
    output, _ = process.communicate(timeout=200)
    assert process.returncode in (1, 2), output
    assert "No space left on device" in output
    lines = [line for line in output.splitlines() if "No space left on device" in line]
    disk.free()
    resumed(command, happened, 1)
    happened(lines[-1])


GONE = """
import pathlib, sys
_flag = pathlib.Path(__file__).with_name("was_gone")
if sys.argv[1].endswith("ts-trace-fp32.baseline.json") and not _flag.exists():
    _flag.touch()  # the last stage before the model is served
    for _file in pathlib.Path({store!r}).glob("objects/*/model.pt"):
        _file.unlink()
"""


@pytest.mark.long
@pytest.mark.fault(
    "Disks",
    "the cell ends `error`, the others go on; resumed, it is built again",
    what="an artifact is deleted between build and use",
)
def test_artifact_that_is_gone_when_it_is_to_be_served(
    make_command: Any, plugins: Path, happened: Any
) -> None:
    command = make_command(plugins, own_store=True)
    model = plugins / "tiny_mlp" / "model.py"
    with model.open("a") as file:
        file.write(GONE.format(store=str(command.site.home / "store")))
    code, output = command.run("sweep", *SMALL)
    assert code == 1, output
    cells = last_cells(command)
    assert {row["format"]: row["verdict"] in CORRECT for row in cells.values()} == {
        "onnx": True,
        "ts-trace": False,
    }
    (bad,) = (row for row in cells.values() if row["format"] == "ts-trace")
    assert bad["verdict"] == "error"
    assert Path(bad["log"]).is_file()
    resumed(command, happened, 2)
    happened(bad["reason"].splitlines()[0])


@pytest.mark.long
@pytest.mark.fault(
    "Prefect's server", "every cell has its row; the command ends as ever", what="away for a minute"
)
def test_prefect_server_that_is_away_for_a_minute(
    command: Any, tmp_path: Path, happened: Any, wait_for: Any
) -> None:
    env = {k: v for k, v in command.env.items() if k != "PREFECT_API_URL"}
    env |= local_server.settings(Site.model_construct(home=tmp_path / "prefect"))
    with ExitStack() as first:
        url = first.enter_context(local_server.running(tmp_path / "server.log", env))
        port = int(url.removesuffix("/api").rpartition(":")[2])
        command = dataclasses.replace(command, env=env | {"PREFECT_API_URL": url})
        process = command.start("sweep", *ONE)
        wait_for(lambda: measures(process), 200)
    time.sleep(60)
    with local_server.running(tmp_path / "server.log", env, port):
        output, _ = process.communicate(timeout=300)
    cells = last_cells(command)
    happened.rows(planned=1, kept=len(cells))
    assert process.returncode == 0, output
    assert {row["verdict"] for row in cells.values()} <= set(CORRECT)
    happened("the campaign waited, and went on")
