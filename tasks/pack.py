"""Handing a cell over: its model repository, with all that another team needs to serve and check it."""

from __future__ import annotations

import json
import os
import shlex
import shutil
from pathlib import Path
from typing import Any, get_args

import numpy as np
import polars as pl

from tasks.core import results
from tasks.core.errors import UserError, unknown
from tasks.core.files import digest_file
from tasks.core.releases import image
from tasks.core.results import WHOLE, Row, asked, ground
from tasks.core.site import Site
from tasks.core.values import ModelFile
from tasks.formats import FORMATS
from tasks.report import write
from tasks.servers import docker, embedded

CLIENT = Path(__file__).parent / "handover" / "client.py"
ROOM = 2.0
"""The sample's answer may be off by this many times the largest difference that correctness found on all
samples: another batch size, or another card of the kind, rounds a little otherwise."""
LEAST = 1e-6
PROVEN = {
    "passed": "the task metric is within its bounds",
    "measured": "tensors agree with the framework's; no metric says more",
    "unstable": "the task metric is within its bounds; throughput and latency were not stable",
}


def pack(campaign: Path, cell: str, target: Path, site: Site) -> None:
    """Write the cell's pack into a new folder; nothing is left of one that fails.

    Raises:
        UserError: there is no such campaign or cell, the cell was not correct, or a file is missing or leads
            out of the campaign and the store.
    """
    row = _row(campaign, cell)
    if target.exists() and (not target.is_dir() or any(target.iterdir())):
        raise UserError(f"{target}: is there already; name a folder that is new or empty")
    fresh = target.with_name(f".{target.name}.{os.getpid()}")
    try:
        fresh.mkdir(parents=True)
        place = ground(campaign, row["profile"])
        _copy(place / "repositories" / cell, fresh / "model_repository", (campaign, site.store.root))
        _sample(place / "predictions" / cell, fresh)
        shutil.copy(CLIENT, fresh / "client.py")
        _own_client(campaign, row, fresh / "model", site)
        write(campaign)
        for name in ("report.html", "report.md"):
            shutil.copy(campaign / name, fresh / name)
        _write_json(fresh / "certificate.json", _certificate(row))
        _write_json(fresh / "versions.json", _versions(row))
        _write_starts(fresh, row, site)
        files = sorted(path for path in fresh.rglob("*") if path.is_file())
        lines = [f"{digest_file(path)}  {path.relative_to(fresh).as_posix()}\n" for path in files]
        (fresh / "SHA256SUMS").write_text("".join(lines), encoding="utf-8")
        if target.exists():
            target.rmdir()
        fresh.rename(target)
    finally:
        shutil.rmtree(fresh, ignore_errors=True)


def latest(site: Site, cell: str) -> Path:
    """The latest campaign in which the cell ran through every stage.

    Raises:
        UserError: there is none.
    """
    known: set[str] = set()
    for path in sorted(site.results.glob("*/rows.jsonl"), reverse=True):
        cells, _ = results.read(path.parent)
        whole = set(cells.filter(pl.col("verdict").is_in(WHOLE))["cell"])
        if cell in whole:
            return path.parent
        known |= whole
    raise unknown("cell", cell, known)


def _row(campaign: Path, cell: str) -> Row:
    cells, _ = results.read(campaign)
    found = cells.filter(pl.col("cell") == cell)
    if found.is_empty():
        raise unknown(f"cell of {campaign.name}", cell, cells["cell"])
    whole = found.filter(pl.col("verdict").is_in(WHOLE))
    found = found if whole.is_empty() else whole
    if found.height > 1:
        where = ", ".join(found["profile"])
        raise UserError(f"{cell}: {campaign.name} has it on {where}; pack it from a campaign of one profile")
    row = found.row(0, named=True)
    if row["verdict"] not in WHOLE:
        raise UserError(f"{cell} is {row['verdict']} in {campaign.name}: only a correct cell is handed over")
    return row


def _copy(source: Path, target: Path, roots: tuple[Path, ...]) -> None:
    """Copy a file or folder with what its links lead to, which must lie in one of the roots."""
    real = source.resolve()
    if not any(real.is_relative_to(root.resolve()) for root in roots):
        raise UserError(f"{source}: leads to {real}, which is outside of what may be handed over")
    if real.is_dir():
        for path in sorted(real.iterdir()):
            if path.name != "__pycache__":
                _copy(path, target / path.name, roots)
    elif real.is_file():
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(real, target)
    else:
        raise UserError(f"{source}: is not there any more; run the cell again")


def _own_client(campaign: Path, row: Row, target: Path, site: Site) -> None:
    """The model's own client, and the modules that it imports, which lie beside it; a model file has none."""
    options = asked(campaign)
    if any(options.get(kind) for kind in get_args(ModelFile)):
        return
    plugin = Path(options.get("model_dir") or site.models / row["model"])
    if (plugin / "client.py").is_file():
        for path in plugin.glob("*.py"):
            _copy(path, target / path.name, (plugin, site.models))


def _sample(predictions: Path, target: Path) -> None:
    """One request, and the framework's answer to it."""
    for name in ("inputs.npz", "framework.npz"):
        if not (predictions / name).is_file():
            raise UserError(f"{predictions / name}: is not there; run the cell again")
    with np.load(predictions / "inputs.npz") as inputs, np.load(predictions / "framework.npz") as outputs:
        count = len(inputs[inputs.files[0]])
        np.savez(target / "sample_input.npz", allow_pickle=False, **inputs)
        expected = {name: outputs[name][:count] for name in outputs}
        np.savez(target / "expected_output.npz", allow_pickle=False, **expected)


def _certificate(row: Row) -> dict[str, Any]:
    names = ("metric", "framework_metric", "served_metric", "metric_drop", "blind_metric")
    bounds = ("largest_difference", "least_cosine", "invariance")
    return {
        **{name: row[name] for name in ("model", "cell", "campaign", "gpu", "verdict")},
        "means": PROVEN[row["verdict"]],
        **{name: row[name] for name in (*names, *bounds)},
        "metrics": json.loads(row["metrics"] or "{}"),
        "allowed_difference": max(ROOM * row["largest_difference"], LEAST),
    }


def _versions(row: Row) -> dict[str, Any]:
    texts = ("versions", "environment", "parameters", "static", "dynamic", "offline", "online")
    plain = (
        *("triton_release", "server", "server_version", "backend", "format", "precision", "accelerator"),
        *("export_format", "export_precision", "accelerator_precision", "opset", "torch_jit", "profile"),
    )
    return {name: row[name] for name in plain} | {name: json.loads(row[name] or "{}") for name in texts}


def _write_starts(folder: Path, row: Row, site: Site) -> None:
    """start-docker.sh, start-embedded.sh where that server can serve it, and a README that says how."""
    hosted = row["backend"] == "hosted"
    gpu = "--gpus all " if json.loads(row["dynamic"])["device_kind"] == "gpu" else ""
    serve = "tritonserver --model-repository=/models --disable-auto-complete-config"
    used = json.loads(row["versions"])
    needs = [f"{name}=={used[name]}" for name in FORMATS[row["format"]].LIBRARIES if name in used]
    if hosted:
        serve = f"bash -c {shlex.quote(f'pip install --quiet {shlex.join(needs)} && exec {serve}')}"
    starts = {
        "start-docker.sh": [
            f'docker run --rm {gpu}--shm-size=1g -p "127.0.0.1:${{GRPC_PORT:-8001}}:8001" '
            f'-v "$PWD/model_repository:/models:ro" {image(row["triton_release"])} {serve}'
        ]
    }
    if hosted:  # the embedded server has no native backend
        starts["start-embedded.sh"] = _embedded_lines(site)
    for name, lines in starts.items():
        text = "\n".join(["#!/bin/sh", "set -eu", 'cd "$(dirname "$0")"', *lines]) + "\n"
        (folder / name).write_text(text, encoding="utf-8")
        (folder / name).chmod(0o755)
    text = _README.format(**row, embedded=_EMBEDDED if hosted else "")
    (folder / "README.md").write_text(text, encoding="utf-8")


def _embedded_lines(site: Site) -> list[str]:
    env, start = embedded.start_line(site)
    ports = [f'--{kind}-port="${{{kind.upper()}_PORT:-{port}}}"' for kind, port in docker.PORTS.items()]
    local = [f"--{kind}-address=127.0.0.1" for kind in docker.PORTS]
    options = ["--model-repository=model_repository", "--disable-auto-complete-config", *local, *ports]
    exports = [f"export {name}={shlex.quote(value)}" for name, value in env.items()]
    return [*exports, " ".join(["exec", shlex.join(start), *options])]


_EMBEDDED = """- `sh start-embedded.sh` starts it with the server binary of the host on which this was packed;
  HTTP_PORT and METRICS_PORT move its other ports.
"""
_README = """# {cell}

`{model}` as {format} {precision}, {backend} on Triton {triton_release}, from campaign {campaign} on {gpu}.

- `model_repository/`: what Triton serves, with its `config.pbtxt`.
- `sh start-docker.sh` starts it in NVIDIA's image. GRPC_PORT moves the port of gRPC.
{embedded}- `python client.py` sends `sample_input.npz` and compares the answer with the framework's in
  `expected_output.npz`.
- `model/`: the model's own client with its pre- and post-processing, where it has one.
- `certificate.json`: how accurate it was found; `report.html`: the campaign; `versions.json`: versions and
  settings; `sha256sum -c SHA256SUMS` checks the files.
"""


def _write_json(path: Path, value: dict[str, Any]) -> None:
    path.write_text(json.dumps(value, indent=1) + "\n", encoding="utf-8")
