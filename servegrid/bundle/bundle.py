"""The bundle of a cell: its model repository, and all that another team needs to serve and check it."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any, get_args

import numpy as np
import polars as pl

from servegrid.bundle.failure import bundle_failure
from servegrid.bundle.folder import copy, new_bundle, write_json
from servegrid.bundle.image import write_image
from servegrid.bundle.kubernetes import image_name, write_manifest
from servegrid.bundle.start_scripts import REPOSITORY, hosted, write_starts
from servegrid.campaign import results
from servegrid.campaign.campaign_folders import newest_first, no_campaign
from servegrid.campaign.columns import parse_json
from servegrid.campaign.layout import CampaignLayout
from servegrid.campaign.options_file import campaign_options, objective
from servegrid.campaign.results import WHOLE, Row
from servegrid.domain.errors import UserError, unknown
from servegrid.domain.values import ModelFile
from servegrid.plan.options import SweepOptions
from servegrid.reporting.recommendation import Recommendation, recommendations
from servegrid.reporting.writing import write
from servegrid.sources.choosing import choose_plugins
from servegrid.store.site import Site

CLIENT = Path(__file__).with_name("client.py")
ROOM = 2.0
"""The sample's answer may differ by this many times the largest difference that correctness found on all
samples: another batch size, or another card of the kind, rounds differently."""
LEAST = 1e-6
WITHIN = "the task metric is within its bounds"
DECIDES_NOTHING = "the task metric decides nothing"
MEANS_BY_REFERENCE = {
    "labels": "it compares with the labels of the samples",
    "framework": "it compares with the framework's answers, without labels",
}
NO_METRIC = "tensors agree with the framework's; no task metric was computed"
UNSTABLE = "throughput and latency were not stable"
RANDOM = "the weights are random"


def bundle(campaign: Path, cell: str, target: Path, site: Site, profile: str | None = None) -> Row:
    """Write the bundle of a cell, or of the error that it ended with, into a new folder; returns its row.

    Raises:
        UserError: there is no such campaign or cell, the cell was neither correct nor an error, or a file is
            missing or leads out of the campaign and the store.
    """
    row = _row(campaign, cell, profile)
    if row["verdict"] == "error":
        bundle_failure(campaign, row, target, site)
        return row
    options = campaign_options(campaign)
    with new_bundle(target) as fresh:
        layout = CampaignLayout(folder=campaign)
        files = layout.written(row["profile"], cell)
        copy(files.repository(cell), fresh / REPOSITORY, (campaign, site.store.root))
        _sample(files.predictions(cell), fresh)
        shutil.copy(CLIENT, fresh / "client.py")
        _own_client(options, row, fresh / "model", site)
        write(campaign)
        for path in (layout.report, layout.markdown):
            shutil.copy(path, fresh / path.name)
        write_json(fresh / "certificate.json", _certificate(row))
        write_json(fresh / "versions.json", _versions(row))
        write_starts(fresh, row, site)
        if hosted(row):
            write_image(fresh, row)
            write_manifest(fresh, row)
        _write_readme(fresh, row)
    return row


def latest(site: Site, cell: str, profile: str | None = None) -> Path:
    """The campaign from which a cell (on a profile) is bundled: the newest in which it passed, or else the
    newest of those in which it did best.

    Raises:
        UserError: the cell neither ran through every stage nor ended as an error in any campaign.
    """
    known: set[str] = set()
    profiles: set[str] = set()
    found: list[tuple[int, Path]] = []
    for folder in newest_first(site.results):
        cells, _ = results.read(folder)
        profiles |= set(cells["profile"].drop_nulls())
        if profile is not None:
            cells = cells.filter(pl.col("profile") == profile)
        cells = cells.filter(pl.col("verdict").is_in((*WHOLE, "error")))
        known |= set(cells["cell"])
        found += [(_rank(row), folder) for row in cells.filter(cell=cell).iter_rows(named=True)]
    if found:
        return min(found, key=lambda entry: entry[0])[1]  # the first of equals, which is the newest
    if profiles and profile is not None and profile not in profiles:
        raise unknown("profile", profile, profiles)
    raise unknown("cell" if profile is None else f"cell of profile {profile}", cell, known)


def _rank(row: Row) -> int:
    """The order of preference: passed, then trained weights, then random weights, then an error."""
    if row["verdict"] in ("passed", "error"):
        return 0 if row["verdict"] == "passed" else 3
    return 2 if row["random_weights"] else 1


def recommended(
    site: Site, campaign: Path | None = None, profile: str | None = None
) -> tuple[Path, Recommendation]:
    """The newest campaign that recommends a cell, or the given one, and its first recommendation.

    Raises:
        UserError: there is no campaign, or none recommends a cell (on that profile).
    """
    folders = [campaign] if campaign else newest_first(site.results)
    if not folders:
        raise no_campaign(site.results)
    for folder in folders:
        for choice in recommendations(*results.read(folder), slo=objective(folder)):
            if profile in (None, choice.profile):
                return folder, choice
    on = f" on profile {profile}" if profile else ""
    raise UserError(
        f"{campaign or site.results}: no cell passed with a stable point{on}, so none is recommended; "
        "name one: `servegrid bundle CELL`"
    )


def _row(campaign: Path, cell: str, profile: str | None) -> Row:
    cells, _ = results.read(campaign)
    found = cells.filter(pl.col("cell") == cell)
    if found.is_empty():
        raise unknown(f"cell of {campaign.name}", cell, cells["cell"])
    if profile is not None:
        known, found = found["profile"], found.filter(pl.col("profile") == profile)
        if found.is_empty():
            raise unknown(f"profile of {cell} in {campaign.name}", profile, known)
    for verdicts in (WHOLE, ("error",)):
        of_verdict = found.filter(pl.col("verdict").is_in(verdicts))
        if of_verdict.height > 1:
            where = ", ".join(of_verdict["profile"])
            raise UserError(f"{cell}: {campaign.name} has it on {where}; say which with --profile")
        if of_verdict.height:
            return of_verdict.row(0, named=True)
    raise UserError(
        f"{cell} is {found['verdict'][0]} in {campaign.name}: only passed, measured, unstable or error cells "
        "can be bundled"
    )


def _own_client(options: dict[str, Any], row: Row, target: Path, site: Site) -> None:
    """The model's own client, and the modules and processor that it needs; a model file has none."""
    if any(options.get(kind) for kind in get_args(ModelFile)):
        return
    if options.get("hf"):
        (made,) = choose_plugins(SweepOptions.model_validate(options), site)
        for name in ("client.py", "processing.py"):
            copy(made.folder / name, target / name, (made.folder,))
        copy(made.folder / "data" / "processor", target / "processor", (made.folder,))
        return
    plugin = Path(options.get("model_dir") or site.models / row["model"])
    if (plugin / "client.py").is_file():
        for path in plugin.glob("*.py"):
            copy(path, target / path.name, (plugin, site.models))


def _sample(predictions: Path, target: Path) -> None:
    """One request, and the framework's answer to it."""
    for name in ("inputs.npz", "framework.npz"):
        if not (predictions / name).is_file():
            raise UserError(f"{predictions / name} is missing; run the cell again")
    with np.load(predictions / "inputs.npz") as inputs, np.load(predictions / "framework.npz") as outputs:
        count = len(inputs[inputs.files[0]])
        np.savez(target / "sample_input.npz", allow_pickle=False, **inputs)
        expected = {name: outputs[name][:count] for name in outputs}
        np.savez(target / "expected_output.npz", allow_pickle=False, **expected)


def _certificate(row: Row) -> dict[str, Any]:
    names = (
        "metric",
        "metric_reference",
        "framework_metric",
        "served_metric",
        "metric_drop",
        "shuffled_metric",
    )
    bounds = ("largest_difference", "least_cosine", "invariance")
    decided = DECIDES_NOTHING if row["verdict"] == "measured" else WITHIN
    means = [NO_METRIC if row["served_metric"] is None else decided]
    means += (
        [MEANS_BY_REFERENCE[row["metric_reference"]]] if row["metric_reference"] in MEANS_BY_REFERENCE else []
    )
    means += [UNSTABLE] if row["verdict"] == "unstable" else []
    means += [RANDOM] if row["random_weights"] else []
    return {
        **{name: row[name] for name in ("model", "cell", "campaign", "gpu", "verdict")},
        "means": "; ".join(means),
        **{name: row[name] for name in (*names, *bounds)},
        "metrics": parse_json(row["metrics"]),
        "allowed_difference": max(ROOM * row["largest_difference"], LEAST),
    }


def _versions(row: Row) -> dict[str, Any]:
    texts = ("versions", "environment", "parameters", "static", "dynamic", "offline", "online")
    plain = (
        *("triton_release", "server", "server_version", "backend", "format", "precision", "accelerator"),
        *("export_format", "export_precision", "accelerator_precision", "opset", "torch_jit", "profile"),
    )
    return {name: row[name] for name in plain} | {name: parse_json(row[name]) for name in texts}


def _write_readme(folder: Path, row: Row) -> None:
    embedded = _EMBEDDED.format(name=image_name(row)) if hosted(row) else ""
    (folder / "README.md").write_text(_README.format(**row, embedded=embedded), encoding="utf-8")


_EMBEDDED = """- `sh start-embedded.sh` starts it with the server binary of the host that wrote this bundle;
  HTTP_PORT and METRICS_PORT move its other ports. It uses the one card that was measured.
- `docker build --tag {name}:latest .` makes an image of server, locked wheels and models, which installs
  nothing when it starts; `kubectl apply --filename kubernetes.yaml` runs it with health probes and the
  measured resources.
"""
_README = """# {cell}

`{model}` as {format} {precision}, {backend} on Triton {triton_release}, from campaign {campaign} on {gpu}.

- `model_repository/`: what Triton serves, with its `config.pbtxt`.
- `sh start-docker.sh` starts it in NVIDIA's image. GRPC_PORT moves the port of gRPC.
{embedded}- `python client.py` sends `sample_input.npz` and compares the answer with the framework's in
  `expected_output.npz`.
- `model/`: the model's own client with its pre- and post-processing, where it has one.
- `certificate.json`: how accurate the served model is; `report.html`: the campaign;
  `versions.json`: versions and settings; `sha256sum -c SHA256SUMS` checks the files.
"""
