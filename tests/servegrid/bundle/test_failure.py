"""The bundle of a cell that ended as an error: its script alone meets the same error."""

from __future__ import annotations

import json
import os
import shlex
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from servegrid.bundle.bundle import bundle
from servegrid.campaign.layout import CampaignLayout, ProfileLayout
from servegrid.campaign.results import Row, Writer
from servegrid.domain.errors import StepError, UserError
from servegrid.domain.values import Interface, Serving
from servegrid.formats.fields import EngineFields
from servegrid.formats.repository import write_repository
from servegrid.frameworks.fields import PrepareFields
from servegrid.host import containers
from servegrid.host.containers import Container
from servegrid.servers import embedded
from servegrid.servers.launch import free_ports
from servegrid.store.build import Workplace, run_step
from servegrid.store.job import Job
from servegrid.store.other_environment import CODE
from servegrid.store.site import Site

CELL: Row = {
    **{"cell": "toy-onnx", "campaign": "c1", "profile": "cpu", "model": "toy", "format": "onnx"},
    **{"precision": "fp32", "triton_release": "24.10", "versions": '{"onnxruntime": "1"}'},
    **{"dynamic": Serving(batching="dynamic", max_batch_size=8).model_dump_json(), "verdict": "error"},
}
PREPARE = """
import json
from pathlib import Path
import ruler

def prepare(variant, output, sources, parameters):
    text = (sources / "weights.txt").read_text() + Path(parameters["more"]).read_text()
    (output / "read").write_text(text)
    raise ValueError(f"{ruler.length(text)} {text} of {variant} are bad weights")
"""


@pytest.fixture
def campaign(site: Site, tmp_path: Path) -> tuple[Path, Site]:
    """A campaign's empty folder, and a site of the test's own, but for its server."""
    folders = {name: tmp_path / name for name in ("models", "sources", "results")}
    (folders["results"] / "c1").mkdir(parents=True)
    return folders["results"] / "c1", site.model_copy(update=folders)


def files(campaign: Path) -> ProfileLayout:
    """Where the cell's files lie."""
    return CampaignLayout(folder=campaign).profile("cpu")


def bundled(campaign: Path, site: Site, target: Path, **ended: object) -> Path:
    """The bundle of an error cell that ended like this; whatever it was made from is gone then."""
    Writer(campaign).append("cell", CELL | ended)
    bundle(campaign, "toy-onnx", target, site)
    subprocess.run(["sha256sum", "--quiet", "--check", "SHA256SUMS"], cwd=target, check=True)
    shutil.rmtree(campaign)
    return target


def test_failed_step_is_repeated_from_the_bundle_alone(campaign: tuple[Path, Site], tmp_path: Path) -> None:
    folder, site = campaign
    plugin, library, sources = site.models / "toy", tmp_path / "library", site.sources / "toy"
    for path, text in (
        (plugin / "prepare.py", PREPARE),
        (plugin / "model.yaml", "name: toy"),
        (library / "ruler.py", "length = len"),
        (library / "unused.py", "secret"),
        (sources / "weights.txt", "four"),
        (tmp_path / "more.txt", "teen"),
    ):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    at = Workplace(
        site=site, plugin=plugin, paths=(library,), logs=files(folder).logs, profile="test-failure",
        cell="toy-onnx", timeout_s=30,
    )  # fmt: skip
    fields = PrepareFields(variant="tiny", parameters={"more": str(tmp_path / "more.txt")})
    with pytest.raises(StepError) as caught:
        run_step("prepare", fields=fields, inputs={}, output=tmp_path, at=at, files={"sources": sources})
    error = caught.value
    target = bundled(
        folder, site, tmp_path / "failure", reason=str(error), log=error.log, command=error.command
    )
    for gone in (plugin, library, sources):
        shutil.rmtree(gone)
    (tmp_path / "more.txt").unlink()

    again = subprocess.run(["sh", str(target / "repeat.sh")], capture_output=True, text=True, check=False)
    assert again.returncode == 1
    message = "ValueError: 8 fourteen of tiny are bad weights"
    assert str(error).endswith(message) and again.stderr.endswith(message + "\n")
    assert (target / "output" / "read").read_text() == "fourteen"
    assert message in (target / "logs" / "toy-onnx.prepare.log").read_text()
    assert message in (target / "README.md").read_text()
    assert json.loads((target / "cell.json").read_text())["dynamic"]["max_batch_size"] == 8
    assert not list(target.rglob("unused.py")), "only the files of another folder that the plug-in imports"


def test_model_that_did_not_load_is_loaded_again_by_a_bare_server(
    campaign: tuple[Path, Site], interface: Callable[..., Interface], tmp_path: Path
) -> None:
    folder, site = campaign
    if problems := embedded.problems(site):
        pytest.skip("; ".join(problems))
    io = interface([("x", "float32", (-1, 2))], [("y", "float32", (-1, 2))])
    artifact = folder / "artifact"
    artifact.mkdir()
    (artifact / "model.onnx").write_bytes(b"no model")
    serving = Serving(batching="dynamic", max_batch_size=8)
    write_repository(files(folder).repository("toy-onnx"), "toy", "onnx", serving, io, artifact)
    log = files(folder).server_log("toy-onnx")
    log.parent.mkdir(parents=True)
    log.write_text("it did not load")
    target = bundled(
        folder, site, tmp_path / "failure", reason="the server did not load toy", log=str(log),
        stage_s='{"convert": 1.0, "deploy": 1.0}', command="servegrid sweep --model toy",
    )  # fmt: skip
    ports = dict(zip(("HTTP_PORT", "GRPC_PORT", "METRICS_PORT"), map(str, free_ports(3)), strict=True))
    again = subprocess.run(
        ["sh", str(target / "repeat.sh")], env=os.environ | ports, capture_output=True, text=True,
        timeout=60, check=False,
    )  # fmt: skip
    assert again.returncode != 0
    assert "INVALID_PROTOBUF" in again.stderr + again.stdout
    assert "servegrid sweep --model toy" in (target / "cell.json").read_text()


def test_failure_that_no_step_alone_repeats_is_repeated_by_the_whole_cell(
    campaign: tuple[Path, Site], tmp_path: Path
) -> None:
    folder, site = campaign
    target = bundled(
        folder, site, tmp_path / "failure", reason="the server went away",
        stage_s='{"deploy": 1.0, "online": 1.0}', command="echo servegrid sweep --model toy",
    )  # fmt: skip
    again = subprocess.run(["sh", str(target / "repeat.sh")], capture_output=True, text=True, check=True)
    assert again.stdout == "servegrid sweep --model toy\n"


def test_missing_job_is_named_and_nothing_is_left(campaign: tuple[Path, Site], tmp_path: Path) -> None:
    folder, site = campaign
    command = "python -P -m servegrid.frameworks /elsewhere/toy-onnx.export.json --output /tmp/x"
    with pytest.raises(UserError, match=r"toy-onnx\.export\.json"):
        bundled(folder, site, tmp_path / "failure", reason="broke", command=command)
    assert not (tmp_path / "failure").exists()


@pytest.mark.parametrize("image", [False, True])
def test_step_of_another_environment_is_repeated_there(
    campaign: tuple[Path, Site], tmp_path: Path, image: bool
) -> None:
    """Without a docker engine and the environment: a stand-in runs in their place and records its call."""
    folder, site = campaign
    (plugin := site.models / "toy").mkdir(parents=True)
    job_path = files(folder).logs / "toy-onnx.convert_tftrt.json"
    job_path.parent.mkdir(parents=True)
    fields = EngineFields.model_validate(
        {
            "precision": "fp16",
            "tolerances": {"absolute": 0.1, "cosine": 0.99},
            "shapes": {},
            "workspace_bytes": None,
            "card": {},
        }
    )
    job = Job(step="convert_tftrt", fields=fields, inputs={"source": plugin}, plugin=plugin, output=tmp_path)
    job_path.write_text(job.model_dump_json())
    (tool := tmp_path / "bin" / ("docker" if image else "python")).parent.mkdir()
    tool.write_text('#!/bin/sh\necho "$PYTHONPATH" "$@"')
    tool.chmod(0o755)
    words = ["-P", "-m", "servegrid.frameworks", str(job_path), "--output", str(tmp_path)]
    in_image = containers.argv(
        Container(image="nvcr.io/tf", files=(CODE, job_path, plugin), output=tmp_path), ["python3", *words]
    )
    command = in_image if image else ["env", "PYTHONPATH=/code", str(tool), *words]
    target = bundled(folder, site, tmp_path / "failure", reason="broke", command=shlex.join(command))
    env = os.environ | {"PATH": f"{tool.parent}:{os.environ['PATH']}", "PYTHONPATH": ""}
    again = subprocess.run(
        ["sh", str(target / "repeat.sh")], env=env, capture_output=True, text=True, check=True
    )
    step = "-P -m servegrid.frameworks job.json --output output"
    if not image:
        assert again.stdout == f"/code {step}\n"
        return
    assert again.stdout.endswith(f"--volume {target}:{target} --workdir {target} nvcr.io/tf python3 {step}\n")
    assert again.stdout.count("--mount") == 1 and f"source={CODE},target={CODE}" in again.stdout
    assert "--network none" in again.stdout and "--env HOME=/tmp" in again.stdout
