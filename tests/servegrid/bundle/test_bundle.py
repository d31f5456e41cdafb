"""Bundles: their content, and what is refused. tests/e2e serves a whole bundle."""

from __future__ import annotations

import json
import re
from pathlib import Path

import numpy as np
import pytest

from servegrid.bundle import client
from servegrid.bundle.bundle import bundle, latest
from servegrid.bundle.start_scripts import write_starts
from servegrid.campaign.columns import MEASURED
from servegrid.campaign.layout import CampaignLayout
from servegrid.campaign.results import Row, Writer
from servegrid.domain.errors import UserError
from servegrid.domain.root import ROOT
from servegrid.store.site import Site

CELL: Row = {
    "cell": "toy-onnx",
    "profile": "cpu",
    "model": "toy",
    "format": "onnx",
    "precision": "fp32",
    "backend": "hosted",
    "triton_release": "24.10",
    "verdict": "passed",
    "versions": '{"onnxruntime": "1"}',
    "environment": '{"cores": 2, "memory_gb": 24, "system": "Linux", "python": "3"}',
    "dynamic": '{"device_kind": "cpu"}',
    "largest_difference": 0.5,
    "stage_s": "{}",
    "wall_s": 1.0,
}


@pytest.fixture
def site(tmp_path: Path) -> Site:
    folders = {name: tmp_path / name for name in ("home", "models", "sources", "results")}
    return Site(profiles=ROOT / "gpu_profiles", **folders)


@pytest.fixture
def campaign(site: Site) -> Path:
    """A campaign with one cell, its repository's artifact a link into the store."""
    folder = site.results / "c1"
    Writer(folder).append("cell", CELL)
    artifact = site.store.root / "objects" / "digest"
    artifact.mkdir(parents=True)
    (artifact / "model.onnx").write_bytes(b"weights")
    files = CampaignLayout(folder=folder).profile("cpu")
    version = files.repository("toy-onnx") / "toy" / "1"
    version.mkdir(parents=True)
    (version.parent / "config.pbtxt").write_text("name: 'toy'")
    (version / "artifact").symlink_to(artifact)
    predictions = files.predictions("toy-onnx")
    predictions.mkdir(parents=True)
    np.savez(predictions / "inputs.npz", x=np.ones((2, 3)))
    np.savez(predictions / "framework.npz", y=np.arange(8.0).reshape(4, 2))
    return folder


@pytest.mark.parametrize("older", [False, True])
def test_bundle_has_files_in_place_of_links_and_the_answer_to_the_sample(
    campaign: Path, site: Site, tmp_path: Path, older: bool
) -> None:
    if older:  # its files lie directly below it
        for path in (campaign / "cpu").iterdir():
            path.rename(campaign / path.name)
        (campaign / "cpu").rmdir()
    target = tmp_path / "bundle"
    bundle(campaign, "toy-onnx", target, site)
    model = target / "model_repository" / "toy" / "1" / "artifact" / "model.onnx"
    assert model.read_bytes() == b"weights" and not model.parent.is_symlink()
    with np.load(target / "expected_output.npz") as expected:
        assert expected["y"].tolist() == [[0.0, 1.0], [2.0, 3.0]]
    assert "24.10-py3" in (target / "start-docker.sh").read_text()
    assert not (target / "model").exists()  # the model has no client of its own


@pytest.mark.parametrize(
    ("verdict", "served", "means"),
    [
        ("passed", 0.9, "the task metric is within its bounds"),
        ("measured", None, "tensors agree with the framework's; no task metric was computed"),
        ("unstable", 0.9, "the task metric is within its bounds; throughput and latency were not stable"),
        (
            "unstable",
            None,
            "tensors agree with the framework's; no task metric was computed; "
            "throughput and latency were not stable",
        ),
    ],
)
def test_certificate_has_the_checks(
    campaign: Path, site: Site, tmp_path: Path, verdict: str, served: float | None, means: str
) -> None:
    (campaign / "rows.jsonl").unlink()
    Writer(campaign).append("cell", CELL | {"verdict": verdict, "served_metric": served})
    bundle(campaign, "toy-onnx", tmp_path / "bundle", site)
    assert json.loads((tmp_path / "bundle" / "certificate.json").read_text())["means"] == means


def test_reports_of_a_bundle_and_its_campaign_have_the_objective(
    campaign: Path, site: Site, tmp_path: Path
) -> None:
    (campaign / "campaign.json").write_text(json.dumps({"options": {"slo": "p99=50ms"}}))
    point = {"scenario": "online", "batch": 1, "concurrency": 4, "instances": 1, "stable": True}
    head = {name: CELL[name] for name in ("cell", "profile", "model", "format", "precision")}
    Writer(campaign).append("measurement", head | point | dict.fromkeys(MEASURED, 20.0))
    bundle(campaign, "toy-onnx", tmp_path / "bundle", site)
    for name in ("report.md", "report.html"):
        assert "best online throughput, p99 at most 50 ms" in (tmp_path / "bundle" / name).read_text()
        assert (campaign / name).read_bytes() == (tmp_path / "bundle" / name).read_bytes()


def test_cell_of_several_profiles_needs_the_profile(campaign: Path, site: Site, tmp_path: Path) -> None:
    Writer(campaign).append("cell", CELL | {"profile": "card", "verdict": "unsupported"})
    bundle(campaign, "toy-onnx", tmp_path / "bundle", site)
    assert (tmp_path / "bundle" / "model_repository" / "toy" / "config.pbtxt").read_text() == "name: 'toy'"
    Writer(campaign).append("cell", CELL | {"profile": "other"})
    with pytest.raises(UserError, match=r"cpu, other.*--profile"):
        bundle(campaign, "toy-onnx", tmp_path / "again", site)
    bundle(campaign, "toy-onnx", tmp_path / "again", site, "cpu")
    assert json.loads((tmp_path / "again" / "versions.json").read_text())["profile"] == "cpu"
    with pytest.raises(UserError, match=r"profile .*'gpu'"):
        bundle(campaign, "toy-onnx", tmp_path / "third", site, "gpu")


def test_latest_campaign_is_one_where_the_cell_passed_or_else_did_best(campaign: Path, site: Site) -> None:
    Writer(site.results / "c2").append("cell", CELL | {"verdict": "error"})
    Writer(site.results / "c3").append("cell", CELL | {"profile": "card"})
    Writer(site.results / "c4").append("cell", CELL | {"verdict": "measured"})
    Writer(site.results / "c5").append("cell", CELL | {"verdict": "measured", "random_weights": True})
    assert latest(site, "toy-onnx").name == "c3"
    assert latest(site, "toy-onnx", "cpu") == campaign
    (campaign / "rows.jsonl").unlink()
    for name in ("c4", "c5", "c2"):
        assert latest(site, "toy-onnx", "cpu").name == name
        (site.results / name / "rows.jsonl").unlink()
    with pytest.raises(UserError, match=r"card 'toy-onx'.*'toy-onnx'"):
        latest(site, "toy-onx", "card")
    with pytest.raises(UserError, match=r"profile 'car'.*'card'"):
        latest(site, "toy-onnx", "car")


@pytest.mark.parametrize(
    ("options", "bundled"), [({}, "site's"), ({"model_dir": "{}/own"}, "own"), ({"onnx": "toy.onnx"}, None)]
)
def test_client_is_the_models_own(
    campaign: Path, site: Site, tmp_path: Path, options: dict[str, str], bundled: str | None
) -> None:
    for folder, text in ((site.models / "toy", "site's"), (tmp_path / "own", "own")):
        folder.mkdir(parents=True)
        (folder / "client.py").write_text(text)
    given = {name: value.format(tmp_path) for name, value in options.items()}
    (campaign / "campaign.json").write_text(json.dumps({"options": given}))
    bundle(campaign, "toy-onnx", tmp_path / "bundle", site)
    client = tmp_path / "bundle" / "model" / "client.py"
    assert (client.read_text() if client.exists() else None) == bundled


@pytest.mark.parametrize(("kind", "library"), [("cpu", "onnxruntime==1.2"), ("gpu", "onnxruntime-gpu==1.2")])
def test_image_installs_the_published_libraries(site: Site, tmp_path: Path, kind: str, library: str) -> None:
    row = {**CELL, "versions": '{"onnxruntime": "1.2+local"}', "dynamic": json.dumps({"device_kind": kind})}
    write_starts(tmp_path, row, site)
    assert f"pip install --quiet {library} &&" in (tmp_path / "start-docker.sh").read_text()


def test_script_of_the_embedded_server_uses_the_card_that_was_measured(site: Site, tmp_path: Path) -> None:
    write_starts(tmp_path, CELL | {"card_uuid": "GPU-12"}, site)
    assert "export CUDA_VISIBLE_DEVICES=GPU-12\n" in (tmp_path / "start-embedded.sh").read_text()
    write_starts(tmp_path, CELL | {"card_uuid": None}, site)
    assert "CUDA_VISIBLE_DEVICES" not in (tmp_path / "start-embedded.sh").read_text()


def test_client_compares_answers_of_other_lengths() -> None:
    short, long = np.ones((2, 1, 3)), np.pad(np.ones((2, 1, 3)), [(0, 0), (0, 0), (0, 2)])
    for one, other in ((short, long), (long, short)):
        found, wanted = client.alike(one, other)
        np.testing.assert_array_equal(found, wanted)
    found, wanted = client.alike(np.ones((2, 1)), np.ones(2))
    assert found.shape == wanted.shape == (2,)


@pytest.mark.parametrize(("backend", "there"), [("hosted", True), ("onnxruntime", False)])
def test_start_script_of_the_embedded_server_where_it_can_serve(
    site: Site, campaign: Path, tmp_path: Path, backend: str, there: bool
) -> None:
    (campaign / "rows.jsonl").unlink()
    Writer(campaign).append("cell", CELL | {"backend": backend})
    bundle(campaign, "toy-onnx", tmp_path / "bundle", site)
    for name in ("start-embedded.sh", "Dockerfile", "requirements.txt", "kubernetes.yaml"):
        assert (tmp_path / "bundle" / name).exists() is there
    assert ("start-embedded.sh" in (tmp_path / "bundle" / "README.md").read_text()) is there


@pytest.mark.fault("Security", "refused; nothing is written", what="bundling a cell called")
@pytest.mark.parametrize("cell", ["../c1", "/etc", "toy-onnx/../..", "other"])
def test_name_that_is_no_cell_of_the_campaign_is_refused(
    campaign: Path, site: Site, tmp_path: Path, cell: str
) -> None:
    with pytest.raises(UserError, match=rf"cell.*{re.escape(repr(cell))}"):
        bundle(campaign, cell, tmp_path / "bundle", site)
    with pytest.raises(UserError, match=rf"cell.*{re.escape(repr(cell))}"):
        latest(site, cell)
    assert not (tmp_path / "bundle").exists()


@pytest.mark.fault("Security", "refused; nothing is written", what="a link that leads out of a campaign at")
@pytest.mark.parametrize("where", ["toy/1/secret", "toy/1/up", "toy/config.pbtxt"])
def test_link_that_leads_out_is_refused_and_nothing_is_left(
    campaign: Path, site: Site, tmp_path: Path, where: str
) -> None:
    (tmp_path / "secret").write_text("secret")
    link = CampaignLayout(folder=campaign).profile("cpu").repository("toy-onnx") / where
    link.unlink(missing_ok=True)
    link.symlink_to(tmp_path / "secret" if "up" not in where else Path("../" * 7 + "secret"))
    before = set(tmp_path.iterdir())
    with pytest.raises(UserError, match=str(tmp_path / "secret")):
        bundle(campaign, "toy-onnx", tmp_path / "bundle", site)
    assert set(tmp_path.iterdir()) == before


@pytest.mark.parametrize("verdict", ["failed_accuracy", "skipped", "unsupported", "infeasible"])
def test_cell_that_was_not_correct_is_refused(site: Site, tmp_path: Path, verdict: str) -> None:
    Writer(site.results / "c2").append("cell", CELL | {"verdict": verdict})
    with pytest.raises(UserError, match=f"toy-onnx is {verdict} in c2"):
        bundle(site.results / "c2", "toy-onnx", tmp_path / "bundle", site)


def test_folder_that_holds_something_is_not_touched(campaign: Path, site: Site, tmp_path: Path) -> None:
    (tmp_path / "bundle").mkdir()
    (tmp_path / "bundle" / "mine").write_text("mine")
    with pytest.raises(UserError, match=str(tmp_path / "bundle")):
        bundle(campaign, "toy-onnx", tmp_path / "bundle", site)
    assert [path.name for path in (tmp_path / "bundle").iterdir()] == ["mine"]


@pytest.mark.fault(
    "Disks",
    "an error that advises to run the cell again; nothing is written",
    what="an artifact is gone when it is bundled",
)
def test_missing_artifact_is_refused_with_the_advice_to_run_the_cell_again(
    campaign: Path, site: Site, tmp_path: Path
) -> None:
    (site.store.root / "objects" / "digest" / "model.onnx").unlink()
    (site.store.root / "objects" / "digest").rmdir()
    with pytest.raises(UserError, match=r"toy-onnx/toy/1/artifact\b.*again"):
        bundle(campaign, "toy-onnx", tmp_path / "bundle", site)
    assert not (tmp_path / "bundle").exists()
