"""Forecasts from the store: stored stages, and the one field that an edit changed."""

from __future__ import annotations

import functools
import os
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from flows.cell import build_requests
from servegrid.campaign.results import Writer, read
from servegrid.domain.errors import UserError
from servegrid.domain.plugins import Plugin
from servegrid.domain.root import ROOT
from servegrid.domain.values import Cell
from servegrid.frameworks import steps
from servegrid.plan import forecast
from servegrid.plan.options import SweepOptions
from servegrid.store.code import code_digests
from servegrid.store.site import Site, default_site
from servegrid.store.why import Reason
from tasks.planning import cell_by_name, plan

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
    entry, cell, left_out = cell_by_name(CELL, SweepOptions(), site)
    assert left_out is None
    return entry.plugin, cell


def why(site: Site) -> tuple[Reason, ...]:
    plugin, cell = find(site)
    return forecast.why(cell, build_requests(plugin, cell, site), site.store)


def keep(site: Site, stages: int = 7) -> None:
    """Keep an artifact of the first stages, each with content of its own, as a campaign would."""
    for number in range(stages):
        request = build_requests(*find(site), site)[number]
        content = f"{request.stage} {request.key}"
        site.store.build(request, lambda folder, c=content: (folder / "file").write_text(c), cell=CELL)  # type: ignore[misc]


def differing(site: Site) -> dict[str, list[str]]:
    """Stage -> what differs, of the stages that would be built; waiting for an input counts as one."""
    reasons = why(site)
    return {
        r.stage: [d.field for d in r.differences] + [f"({name})" for name in r.waits_for]
        for r in reasons
        if not r.stored
    }


def test_without_a_store_everything_is_built(site: Site) -> None:
    reasons = why(site)
    assert [r.stage for r in reasons] == [
        "prepare", "export", "convert_onnx", "profile_data", "reference", "converted_answers", "ceilings",
    ]  # fmt: skip
    assert all(r.nearest is None and not r.stored for r in reasons)


def test_kept_stages_are_stored_and_a_damaged_artifact_is_built_again(site: Site) -> None:
    keep(site)
    assert differing(site) == {}
    exported = build_requests(*find(site), site)[1]
    ref = site.store.find(exported.key)
    assert ref is not None
    (site.store.path(ref) / "file").write_text("damaged")
    (reason,) = (r for r in why(site) if not r.stored)
    assert (reason.stage, reason.damaged) == ("export", True)


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
    "prepare.py": (
        f"{MODEL}/prepare.py",
        '"""Checkpoint',
        '"""Weights',
        {stage: ["sources.prepare.py"] for stage in ("prepare",)}
        | {stage: ["sources.prepare.py", "(prepared)"] for stage in ("export", "profile_data")},
    ),
    "model.py": (
        f"{MODEL}/model.py",
        "bias=False)",
        "bias=(False))",
        {"prepare": ["sources.model.py"], "export": ["sources.model.py", "(prepared)"]},
    ),
    "metrics.py": (f"{MODEL}/metrics.py", '"""', '"""Reworded: ', {}),
}


@pytest.mark.parametrize("kind", EDITS)
def test_why_names_the_one_field_that_an_edit_changed(site: Site, kind: str) -> None:
    keep(site)
    path, old, new, expected = EDITS[kind]
    edit(site.models.parent / path, old, new)
    found = differing(site)
    assert {stage: found.get(stage) for stage in expected} == expected
    others = {field for stage in found.keys() - expected.keys() for field in found[stage]}
    named = {field for fields in expected.values() for field in fields if field.startswith("sources.")}
    assert all(field.startswith("(") or field in named for field in others)


def test_why_names_a_changed_file_of_the_user(site: Site) -> None:
    keep(site)
    write_weights(site.sources, 3.0)
    assert differing(site)["prepare"] == ["fields.files.weights.npy"]


def test_why_names_a_parameter_and_not_the_axes_that_follow_it(site: Site) -> None:
    keep(site)
    edit(site.models / "tiny_mlp" / "model.yaml", "{features: 4}", "{features: 5}")
    found = differing(site)
    assert found["prepare"] == ["fields.parameters.features"]
    assert found["export"] == ["fields.parameters.features", "(prepared)"]
    assert found["convert_onnx"] == ["(source)"]


def test_a_library_and_the_code_of_a_step_are_named(
    site: Site, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    keep(site)
    fake = tmp_path / "libraries" / "onnxruntime-99.0.dist-info"
    fake.mkdir(parents=True)
    (fake / "METADATA").write_text("Metadata-Version: 2.1\nName: onnxruntime\nVersion: 99.0\n")
    with monkeypatch.context() as patch:
        patch.syspath_prepend(tmp_path / "libraries")
        assert differing(site) == {
            "convert_onnx": ["libraries.onnxruntime"],
            "converted_answers": ["libraries.onnxruntime", "(converted)"],
        }
    code_digests.cache_clear()
    shutil.copytree(ROOT / "servegrid", tmp_path / "code" / "servegrid")
    edit(tmp_path / "code" / "servegrid" / "formats" / "onnx" / "fusion.py", "opt_level=0", "opt_level=1")
    changed = functools.partial(code_digests, root=tmp_path / "code")
    monkeypatch.setattr(steps, "code_digests", changed)
    assert differing(site) == {
        "convert_onnx": ["code.servegrid.formats.onnx.fusion"],
        "converted_answers": ["(converted)"],
    }
    reason = next(r for r in why(site) if not r.stored)
    assert "servegrid.formats.onnx.fusion" in reason.lines[1] and "changed" in reason.lines[1]


def test_why_names_an_input_that_was_rebuilt(site: Site) -> None:
    keep(site)
    edit(site.models / "tiny_mlp" / "model.yaml", "opset: 13", "opset: 14")
    assert differing(site)["convert_onnx"] == ["(source)"]
    keep(site, stages=2)
    reason = next(r for r in why(site) if not r.stored)
    assert [d.field for d in reason.differences] == ["inputs.source"]


def run_command(site: Site, *words: str) -> list[str]:
    env = os.environ | {f"SERVEGRID_{k.upper()}": str(getattr(site, k)) for k in FOLDERS}
    program = str(Path(sys.executable).with_name("servegrid"))
    done = subprocess.run([program, *words], env=env, capture_output=True, text=True, check=True)
    return done.stdout.splitlines()


def test_command_names_only_the_edited_field(site: Site) -> None:
    keep(site)
    edit(site.models / "tiny_mlp" / "model.yaml", "absolute: 0.0001", "absolute: 0.0002")
    assert run_command(site, "why", CELL) == [
        "prepare: stored",
        "export: stored",
        "convert_onnx: built; this differs from what is stored:",
        "  fields.tolerances.absolute: 0.0001 -> 0.0002",
        "profile_data: stored",
        "reference: stored",
        "converted_answers: built, unless its converted is the same again",
        "ceilings: stored",
    ]


def row(site: Site, campaign: str, wall_s: float | None, verdict: str = "passed") -> None:
    """A campaign with one finished cell."""
    entry = {"cell": CELL, "profile": "cpu", "random_weights": False, "verdict": verdict, "wall_s": wall_s}
    folder = site.results / campaign
    Writer(folder).append("cell", entry)
    read(folder)[0].write_parquet(folder / "cells.parquet")


def test_forecast_has_the_stages_by_what_is_stored_and_the_last_time_of_the_cell(site: Site) -> None:
    keep(site)
    edit(site.models.parent / MODEL / "model.yaml", "opset: 13", "opset: 14")
    found = forecast.expect(build_requests(*find(site), site), site.store, 14.5)
    assert (found.stored, found.to_build, found.wall_s) == (
        ("prepare", "profile_data", "reference", "ceilings"),
        ("export", "convert_onnx", "converted_answers"),
        14.5,
    )  # fmt: skip


def test_plan_shows_the_last_settled_time_of_each_cell_and_which_variant_lacks_files(site: Site) -> None:
    row(site, "20260101-000000-aa", 12.5)
    row(site, "20260102-000000-aa", 14.5)
    row(site, "20260103-000000-aa", 1.0, verdict="error")
    row(site, "20260104-000000-aa", None, verdict="unsupported")
    (site.sources / "tiny_mlp" / "weights.npy").unlink()
    words = ("plan", "--model", "tiny_mlp", "--variant", "full", "--format", "onnx", "--precision", "fp32")
    _, line, last = run_command(site, *words)
    assert line.split("\t")[0] == CELL
    assert line.split("\t")[3:] == ["files that the variant reads are not there", "14 s"]
    assert last == "1 cell; expected: 14 s"
    _, random, _ = run_command(site, *words, "--random-weights")
    assert random.split("\t")[-1] == "", "with random weights the cell has never run"


def test_a_bounded_cell_is_found_by_its_name(site: Site) -> None:
    for bounds in ("-b2", "-c1", "-b2-c1"):
        _, cell, left_out = cell_by_name(f"{CELL}{bounds}", SweepOptions(), site)
        assert (cell.name, left_out) == (f"{CELL}{bounds}", None)
    assert (cell.static.max_batch_size, cell.online.concurrency) == (2, (1,))


def test_a_cell_of_other_instances_or_settings_is_found_by_its_name(site: Site) -> None:
    for name in (f"{CELL}-x3", f"{CELL}-x12-b2"):
        _, cell, _ = cell_by_name(name, SweepOptions(), site)
        assert cell.name == name
    options = SweepOptions(models=("tiny_mlp",), variant="full", sets=("max_queue_delay_us=77",))
    (entry,) = plan(options, site)
    for cell in entry.plan.cells:
        assert cell.dynamic.max_queue_delay_us == 77
        assert cell_by_name(cell.name, options, site)[1] == cell
    with pytest.raises(UserError, match="unknown cell"):
        cell_by_name(cell.name, SweepOptions(), site)


def test_an_artifact_of_another_model_is_named_with_its_cell(site: Site) -> None:
    keep(site)
    shutil.copytree(site.models / "tiny_mlp", site.models / "twin")
    edit(site.models / "twin" / "model.yaml", "name: tiny_mlp", "name: twin")
    shutil.copytree(site.sources / "tiny_mlp", site.sources / "twin")
    entry, cell, _ = cell_by_name(CELL.replace("tiny_mlp", "twin"), SweepOptions(), site)
    for reason in forecast.why(cell, build_requests(entry.plugin, cell, site), site.store):
        assert reason.lines == (f"{reason.stage}: stored (made for {CELL})",)


def test_plan_and_why_count_the_same_stages(site: Site) -> None:
    keep(site, stages=3)
    reasons = why(site)
    expected = forecast.expect(build_requests(*find(site), site), site.store, None)
    assert tuple(r.stage for r in reasons if r.stored) == expected.stored
    assert tuple(r.stage for r in reasons if not r.stored) == expected.to_build


def test_error_of_an_unknown_cell_names_the_nearest(site: Site) -> None:
    with pytest.raises(UserError, match=f"unknown cell '{CELL[:-1]}': did you mean '{CELL}'"):
        cell_by_name(CELL[:-1], SweepOptions(), site)


@pytest.mark.parametrize(
    ("times", "line"),
    [
        ([], "0 cells"),
        ([None], "1 cell; 1 never run before"),
        ([2.0, 3.0], "2 cells; expected: 5 s"),
        ([2.0, None], "2 cells; expected: 2 s; 1 never run before"),
    ],
)
def test_summary_counts_cells_and_known_seconds(times: list[float | None], line: str) -> None:
    assert forecast.summary(times) == line
