"""The scripts that start a bare server on a bundle's model repository."""

from __future__ import annotations

import shlex
from pathlib import Path

from servegrid.bundle.folder import write_script
from servegrid.bundle.image import device_kind, pins
from servegrid.campaign.columns import parse_json
from servegrid.campaign.results import Row
from servegrid.domain.releases import image
from servegrid.servers import docker, embedded
from servegrid.store.site import Site

REPOSITORY = "model_repository"


def write_starts(folder: Path, row: Row, site: Site) -> None:
    """start-docker.sh and, where that server can serve it, start-embedded.sh for the cell of a row."""
    write_script(folder / "start-docker.sh", _docker_line(row))
    if hosted(row):  # the embedded server has no native backend
        write_script(folder / "start-embedded.sh", *_embedded_lines(row, site))


def hosted(row: Row) -> bool:
    """Whether the cell was served by our runtime; a row without a server has the planned backend."""
    return (row["backend"] or parse_json(row["dynamic"]).get("backend")) == "hosted"


def _docker_line(row: Row) -> str:
    gpu = "--gpus all " if device_kind(row) == "gpu" else ""
    serve = "tritonserver --model-repository=/models --disable-auto-complete-config"
    if hosted(row):
        needs = [f"{name}=={version}" for name, version in pins(row).items()]
        serve = f"bash -c {shlex.quote(f'pip install --quiet {shlex.join(needs)} && exec {serve}')}"
    return (
        f'docker run --rm {gpu}--shm-size=1g -p "127.0.0.1:${{GRPC_PORT:-8001}}:8001" '
        f'-v "$PWD/{REPOSITORY}:/models:ro" {image(row["triton_release"])} {serve}'
    )


def _embedded_lines(row: Row, site: Site) -> list[str]:
    """On the card that was measured, if it was one: Triton would start an instance on each card."""
    env, start = embedded.start_line(site)
    if row.get("card_uuid"):
        env["CUDA_VISIBLE_DEVICES"] = row["card_uuid"]
    ports = [f'--{kind}-port="${{{kind.upper()}_PORT:-{port}}}"' for kind, port in docker.PORTS.items()]
    local = [f"--{kind}-address=127.0.0.1" for kind in docker.PORTS]
    options = [f"--model-repository={REPOSITORY}", "--disable-auto-complete-config", *local, *ports]
    exports = [f"export {name}={shlex.quote(value)}" for name, value in env.items()]
    return [*exports, " ".join(["exec", shlex.join(start), *options])]
