"""What a campaign would find in the store: each edit is named as the one field that it changes."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from flows import forecast
from servegrid.campaign.results import Writer, read
from servegrid.campaign.tables import last_wall_s
from servegrid.domain.errors import UserError
from servegrid.domain.plugins import Plugin
from servegrid.domain.root import ROOT
from servegrid.domain.values import Cell
from servegrid.plan.options import SweepOptions
from servegrid.store.site import Site, default_site
from tasks import convert

FOLDERS = ("home", "models", "sources", "results")
CELL = "tiny_mlp-full-onnx-fp32"


@pytest.fixture
def site(tmp_path: Path) -> Site:
    """A site with one model, made from the template, and the user's file that it reads."""
    shutil.copytree(ROOT / "models" / "_template", tmp_path / "models" / "tiny_mlp")
    spec = tmp_path / "models" / "tiny_mlp" / "model.yaml"
    edit(spec, "name: _template", "name: tiny_mlp")
    edit(spec, "parameters: {}", "parameters: {features: 4}")
    edit(spec, "shape: [batch, 4]", "shape: [batch, features]")
    write_weights(tmp_path / "sources", 1.0)
    return default_site().model_copy(update={name: tmp_path / name for name in FOLDERS})


def write_weights(sources: Path, scale: float) -> None:
    (sources / "tiny_mlp").mkdir(parents=True, exist_ok=True)
    np.save(sources / "tiny_mlp" / "weights.npy", np.full((3, 4), scale, np.float32))


def edit(path: Path, old: str, new: str) -> None:
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new))


def find(site: Site) -> tuple[Plugin, Cell]:
    entry, cell, left_out = forecast.find(CELL, SweepOptions(), site)
    assert left_out is None
    return entry.plugin, cell


def keep(site: Site, stages: int = 6) -> None:
    """Keep an artifact of the first stages, each with content of its own, as a campaign would."""
    for number in range(stages):
        request = forecast.requests(*find(site), site)[number]
        content = f"{request.stage} {request.key}"
        site.store.build(request, lambda folder, c=content: (folder / "file").write_text(c), cell=CELL)  # type: ignore[misc]


def differing(site: Site) -> dict[str, list[str]]:
    """Stage -> what differs, of the stages that would be built; waiting for an input counts as one."""
    reasons = forecast.why(*find(site), site)
    return {
        r.stage: [d.field for d in r.differences] + [f"({name})" for name in r.waits_for]
        for r in reasons
        if not r.stored
    }


def test_without_a_store_everything_is_built(site: Site) -> None:
    reasons = forecast.why(*find(site), site)
    assert [r.stage for r in reasons] == [
        "prepare", "export", "convert_onnx", "profile_data", "reference", "ceilings",
    ]  # fmt: skip
    assert all("keeps none of this model" in r.lines[0] for r in reasons)


def test_what_is_kept_is_stored_and_a_damaged_artifact_is_told(site: Site) -> None:
    keep(site)
    assert differing(site) == {}
    exported = forecast.requests(*find(site), site)[1]
    ref = site.store.find(exported.key)
    assert ref is not None
    (site.store.path(ref) / "file").write_text("damaged")
    (told,) = (r for r in forecast.why(*find(site), site) if not r.stored)
    assert told.lines == ("export: built again; its artifact is damaged or gone",)


MODEL = "models/tiny_mlp"
EDITS = {
    "opset": (f"{MODEL}/model.yaml", "opset: 13", "opset: 14", {"export": ["fields.opset"]}),
    "tolerance": (
        f"{MODEL}/model.yaml",
        "absolute: 0.0001",
        "absolute: 0.0002",
        {"convert_onnx": ["fields.tolerances.absolute"]},
    ),
    "samples": (
        f"{MODEL}/model.yaml",
        "samples: 100",
        "samples: 50",
        {"profile_data": ["fields.samples"]},
    ),
    "source file": (
        f"{MODEL}/prepare.py",
        '"""Checkpoint',
        '"""Weights',
        {"prepare": ["sources.prepare.py"]},
    ),
    "network": (
        f"{MODEL}/model.py",
        "bias=False)",
        "bias=(False))",
        {stage: ["sources.model.py"] for stage in ("export", "reference")},
    ),
}


@pytest.mark.parametrize("kind", EDITS)
def test_an_edit_is_named_as_the_one_field_that_differs(site: Site, kind: str) -> None:
    keep(site)
    path, old, new, expected = EDITS[kind]
    edit(site.models.parent / path, old, new)
    found = differing(site)
    assert {stage: found.get(stage) for stage in expected} == expected
    for stage in found.keys() - expected.keys():
        assert all(field.startswith("(") for field in found[stage]), f"{stage} waits for its inputs only"


def test_a_users_file_is_named(site: Site) -> None:
    keep(site)
    write_weights(site.sources, 3.0)
    assert differing(site)["prepare"] == ["fields.files.weights.npy"]


def test_a_parameter_is_named_without_the_axes_that_follow_it(site: Site) -> None:
    keep(site)
    edit(site.models / "tiny_mlp" / "model.yaml", "{features: 4}", "{features: 5}")
    found = differing(site)
    assert found["prepare"] == ["fields.parameters.features"]
    assert found["export"] == ["fields.parameters.features", "(prepared)"]
    assert found["convert_onnx"] == ["(source)"]


def test_a_library_and_a_stages_version_are_named(
    site: Site, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    keep(site)
    fake = tmp_path / "libraries" / "onnxruntime-99.0.dist-info"
    fake.mkdir(parents=True)
    (fake / "METADATA").write_text("Metadata-Version: 2.1\nName: onnxruntime\nVersion: 99.0\n")
    with monkeypatch.context() as patch:
        patch.syspath_prepend(tmp_path / "libraries")
        assert differing(site) == {"convert_onnx": ["libraries.onnxruntime"]}
    monkeypatch.setattr(convert, "VERSION", 99)
    assert differing(site) == {"convert_onnx": ["version"]}


def test_an_input_that_was_built_anew_is_named(site: Site) -> None:
    keep(site)
    edit(site.models / "tiny_mlp" / "model.yaml", "opset: 13", "opset: 14")
    assert differing(site)["convert_onnx"] == ["(source)"]
    keep(site, stages=2)
    (told,) = (r for r in forecast.why(*find(site), site) if not r.stored)
    assert [d.field for d in told.differences] == ["inputs.source"]


def test_command_names_just_what_was_edited(site: Site) -> None:
    keep(site)
    edit(site.models / "tiny_mlp" / "model.yaml", "absolute: 0.0001", "absolute: 0.0002")
    env = os.environ | {f"SERVEGRID_{k.upper()}": str(getattr(site, k)) for k in FOLDERS}
    program = str(Path(sys.executable).with_name("servegrid"))
    done = subprocess.run([program, "why", CELL], env=env, capture_output=True, text=True, check=True)
    assert done.stdout.splitlines() == [
        "prepare: stored",
        "export: stored",
        "convert_onnx: built, for this differs from what is stored:",
        "  fields.tolerances.absolute: 0.0001 -> 0.0002",
        "profile_data: stored",
        "reference: stored",
        "ceilings: stored",
    ]


def row(site: Site, campaign: str, wall_s: float | None, verdict: str = "passed") -> None:
    """A campaign with one finished cell."""
    entry = {"cell": CELL, "profile": "cpu", "random_weights": False, "verdict": verdict, "wall_s": wall_s}
    folder = site.results / campaign
    Writer(folder).append("cell", entry)
    read(folder)[0].write_parquet(folder / "cells.parquet")


def test_plan_tells_what_would_be_built_and_how_long_the_cell_took_last(site: Site) -> None:
    keep(site)
    edit(site.models / "tiny_mlp" / "model.yaml", "opset: 13", "opset: 14")
    plugin, cell = find(site)
    found = forecast.expect(plugin, cell, site, last_wall_s(site.results))
    assert (found.stored, found.to_build, found.wall_s) == (
        ("prepare", "profile_data", "reference", "ceilings"), ("export", "convert_onnx"), None,
    )  # fmt: skip
    row(site, "20260101-000000-aa", 12.5)
    row(site, "20260102-000000-aa", 14.5)
    row(site, "20260103-000000-aa", 1.0, verdict="error")
    row(site, "20260104-000000-aa", None, verdict="unsupported")
    assert forecast.expect(plugin, cell, site, last_wall_s(site.results)).wall_s == 14.5
    random = cell.model_copy(update={"product": cell.product.model_copy(update={"random_weights": True})})
    assert forecast.expect(plugin, random, site, last_wall_s(site.results)).wall_s is None


def test_plan_of_a_variant_without_its_files_says_so(site: Site) -> None:
    (site.sources / "tiny_mlp" / "weights.npy").unlink()
    found = forecast.expect(*find(site), site, {})
    assert found.missing == "files that the variant reads are not there"


def test_an_artifact_of_another_model_is_named_with_its_cell(site: Site) -> None:
    keep(site)
    shutil.copytree(site.models / "tiny_mlp", site.models / "twin")
    edit(site.models / "twin" / "model.yaml", "name: tiny_mlp", "name: twin")
    shutil.copytree(site.sources / "tiny_mlp", site.sources / "twin")
    entry, cell, _ = forecast.find(CELL.replace("tiny_mlp", "twin"), SweepOptions(), site)
    for reason in forecast.why(entry.plugin, cell, site):
        assert reason.lines == (f"{reason.stage}: stored (made for {CELL})",)


def test_plan_and_why_count_the_same_stages(site: Site) -> None:
    keep(site, stages=3)
    reasons = forecast.why(*find(site), site)
    expected = forecast.expect(*find(site), site, {})
    assert tuple(r.stage for r in reasons if r.stored) == expected.stored
    assert tuple(r.stage for r in reasons if not r.stored) == expected.to_build


def test_unknown_cell_is_told_with_the_nearest(site: Site) -> None:
    with pytest.raises(UserError, match=f"unknown cell '{CELL[:-1]}': did you mean '{CELL}'"):
        forecast.find(CELL[:-1], SweepOptions(), site)


@pytest.mark.parametrize(
    ("times", "line"),
    [
        ([], "0 cells"),
        ([None], "1 cell; 1 never run before"),
        ([2.0, 3.0], "2 cells; expected: 5 s"),
        ([2.0, None], "2 cells; expected: 2 s; 1 never run before"),
    ],
)
def test_last_line_of_the_plan_says_what_it_knows(times: list[float | None], line: str) -> None:
    assert forecast.summary(times) == line
