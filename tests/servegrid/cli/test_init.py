"""`servegrid init`: the folder of a model file, and what an edit of it builds again."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
import pytest
import yaml
from onnx import TensorProto as T
from onnx import helper

from flows.cell import Built, build_cell, build_requests, workplace
from servegrid.domain.values import ArtifactRef, Cell
from servegrid.plan.model_plan import ModelPlan
from servegrid.plan.options import SweepOptions
from servegrid.store.build import Workplace, build
from servegrid.store.site import Site, default_site
from servegrid.store.store import BuildRequest
from tasks.caching import BuildTask
from tasks.planning import plan

Run = Callable[..., tuple[int, str]]


@pytest.fixture
def net(tmp_path: Path) -> Path:
    """x [n, 6] -> y [n, 3]: a matrix product and a ReLU."""
    weights = np.random.default_rng(0).normal(size=(6, 3)).astype(np.float32)
    graph = helper.make_graph(
        [helper.make_node("MatMul", ["x", "w"], ["h"]), helper.make_node("Relu", ["h"], ["y"])],
        "g",
        [helper.make_tensor_value_info("x", T.FLOAT, ["n", 6])],
        [helper.make_tensor_value_info("y", T.FLOAT, ["n", 3])],
        [onnx.numpy_helper.from_array(weights, "w")],
    )
    path = tmp_path / "my net.onnx"
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9), path)
    return path


def plan_of(**options: object) -> ModelPlan:
    (entry,) = plan(SweepOptions.model_validate(options), default_site())
    return entry


def build_all(entry: ModelPlan, cell: Cell, site: Site) -> Built:
    """Every build stage of a cell, without a server."""

    def make(stage: BuildTask, request: BuildRequest, at: Workplace) -> ArtifactRef:
        return build(request, at)

    return build_cell(entry.plugin, cell, "c", workplace(entry.plugin, cell, site, "c"), make=make)


def to_build(entry: ModelPlan, cell: Cell, site: Site) -> list[str]:
    """The stages of a cell that the store does not have."""
    requests = build_requests(entry.plugin, cell, site)
    return [request.stage for request in requests if site.store.known(request.key) is None]


def test_the_folder_is_the_one_that_a_sweep_makes(servegrid: Run, net: Path, tmp_path: Path) -> None:
    code, output = servegrid("init", "folder", "--onnx", str(net))
    assert code == 0, output
    assert "servegrid sweep --model-dir folder" in output
    folder = tmp_path / "folder"
    assert (folder / "data" / "model.onnx").read_bytes() == net.read_bytes()
    by_file, by_folder = plan_of(onnx=str(net)), plan_of(model_dir=str(folder))
    assert by_file.plan == by_folder.plan
    site = default_site()
    for cell in by_file.plan.cells:
        keys = [[r.key for r in build_requests(e.plugin, cell, site)] for e in (by_file, by_folder)]
        assert keys[0] == keys[1]


def test_the_readme_names_the_command_that_made_the_folder(servegrid: Run, net: Path, tmp_path: Path) -> None:
    given = ("--onnx", str(net), "--name", "ranker", "--set", "max_batch_size=64", "--shape", "x=1,6")
    assert servegrid("init", "folder", *given)[0] == 0
    text = (tmp_path / "folder" / "README.md").read_text()
    (line,) = (line for line in text.splitlines() if line.startswith("servegrid init"))
    for words in (f"--onnx '{net}'", "--name ranker", "--set max_batch_size=64", "--shape x=1,6"):
        assert words in line


def test_settings_are_in_the_folder_s_model_yaml(servegrid: Run, net: Path, tmp_path: Path) -> None:
    given = ("--set", "max_batch_size=64", "--set", "tolerances.fp16.absolute=0.5", "--name", "ranker")
    code, output = servegrid("init", "folder", "--onnx", str(net), *given)
    assert code == 0, output
    spec = yaml.safe_load((tmp_path / "folder" / "model.yaml").read_text())
    assert spec["name"] == "ranker"
    assert spec["variants"]["file"]["serving"]["max_batch_size"] == 64
    assert spec["tolerances"]["fp16"]["absolute"] == 0.5
    for cell in plan_of(model_dir=str(tmp_path / "folder")).plan.cells:
        assert cell.dynamic.max_batch_size == 64


def test_an_edited_tolerance_rebuilds_only_what_reads_it(servegrid: Run, net: Path, tmp_path: Path) -> None:
    assert servegrid("init", "folder", "--onnx", str(net))[0] == 0
    site, options = default_site(), {"model_dir": str(tmp_path / "folder")}
    entry = plan_of(**options)
    for cell in entry.plan.cells:
        build_all(entry, cell, site)
        assert to_build(entry, cell, site) == []
    path = tmp_path / "folder" / "model.yaml"
    spec = yaml.safe_load(path.read_text())
    spec["tolerances"]["fp16"]["absolute"] *= 2
    path.write_text(yaml.safe_dump(spec))
    edited = plan_of(**options)
    found = {cell.product.precision: to_build(edited, cell, site) for cell in edited.plan.cells}
    assert found == {"fp32": [], "fp16": ["convert_onnx", "converted_answers"]}
    (tmp_path / "folder" / "README.md").write_text("mine")
    assert to_build(edited, edited.plan.cells[0], site) == []


@pytest.mark.parametrize(
    ("words", "named"),
    [
        (("folder",), "--onnx or --torchscript or --torch-export or --savedmodel or --keras"),
        (("folder", "--onnx", "no.onnx"), "--onnx .*no.onnx: no such file"),
        (("folder", "--onnx", "text.onnx"), "--onnx .*text.onnx: a web page"),
        (("full", "--onnx", "text.onnx"), "full exists; name a folder that is new or empty"),
        (("text.onnx", "--onnx", "text.onnx"), "text.onnx exists"),
        (("folder", "--onnx", "text.onnx", "--torchscript", "x"), "--onnx and --torchscript: give one"),
        (("folder", "--onnx", "text.onnx", "--precision", "fp16"), "--precision"),
        (("folder", "--model", "resnet50"), "--model"),
        ((), "folder"),
    ],
)
def test_a_wrong_command_leaves_nothing(
    words: tuple[str, ...], named: str, servegrid: Run, home: Path, tmp_path: Path
) -> None:
    (tmp_path / "text.onnx").write_text("<!doctype html>")
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "mine").touch()
    before = sorted(tmp_path.iterdir())
    code, output = servegrid("init", *words)
    assert (code, len(output.splitlines())) == (2, 1), output
    assert re.search(named, output), output
    assert [path for path in sorted(tmp_path.iterdir()) if path != home] == before
    assert not list(home.rglob("objects/*")) and not list(home.rglob("scratch/*"))
