"""Which model file a cell is of: files of one name are never taken for one another."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto as T
from onnx import helper

from servegrid.campaign.results import Writer
from servegrid.domain.errors import UserError
from servegrid.domain.values import Cell
from servegrid.plan.options import SweepOptions
from servegrid.regression.campaigns import Rule, compare, read_repeats
from servegrid.reporting import history
from servegrid.store.site import Site, default_site
from tasks.planning import plan


def write_net(path: Path, width: int) -> Path:
    """x [n, width] -> y [n, width], a matrix product."""
    weights = np.random.default_rng(0).normal(size=(width, width)).astype(np.float32)
    x, y = (helper.make_tensor_value_info(name, T.FLOAT, ["n", width]) for name in "xy")
    tensor = onnx.numpy_helper.from_array(weights, "w")
    graph = helper.make_graph([helper.make_node("MatMul", ["x", "w"], ["y"])], "g", [x], [y], [tensor])
    path.parent.mkdir(exist_ok=True)
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9), path)
    return path


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Site:
    return default_site().model_copy(update={"home": tmp_path_factory.mktemp("home")})


def cells(site: Site, path: Path, **options: object) -> tuple[Cell, ...]:
    (entry,) = plan(SweepOptions.model_validate({"onnx": str(path), **options}), site)
    return entry.plan.cells


def test_two_files_of_one_name_have_no_cell_in_common(site: Site, tmp_path: Path) -> None:
    a, b = (write_net(tmp_path / name / "model.onnx", width) for name, width in (("a", 8), ("b", 16)))
    of_a, of_b = cells(site, a), cells(site, b)
    assert not {cell.name for cell in of_a} & {cell.name for cell in of_b}
    results = tmp_path / "results"
    for campaign, cell in (("one", of_a[0]), ("two", of_b[0])):
        row = {"campaign": campaign, "cell": cell.name, "profile": "cpu", "random_weights": False}
        row["verdict"] = "measured" if campaign == "one" else "unstable"
        Writer(results / campaign).append("cell", row)
    assert history.moves(results) == []
    with pytest.raises(UserError, match="no cell in common"):
        compare(*(read_repeats(name, results) for name in ("one", "two")), Rule())


def test_one_file_at_two_places_is_one_model(site: Site, tmp_path: Path) -> None:
    a, b = (write_net(tmp_path / name / "model.onnx", 8) for name in ("a", "b"))
    assert cells(site, a) == cells(site, b)


def test_the_samples_are_not_the_identity(site: Site, tmp_path: Path) -> None:
    path = write_net(tmp_path / "model.onnx", 8)
    np.savez(tmp_path / "samples.npz", x=np.ones((3, 8), np.float32))
    assert cells(site, path, samples=str(tmp_path / "samples.npz")) == cells(site, path)


def test_a_file_is_named_by_an_option(site: Site, tmp_path: Path) -> None:
    path = write_net(tmp_path / "model.onnx", 8)
    named, unnamed = cells(site, path, name="ranker"), cells(site, path)
    assert [cell.name for cell in named] == [cell.name.replace("model-", "ranker-", 1) for cell in unnamed]


def test_settings_and_instances_of_a_file_have_no_limit_of_8_or_16(site: Site, tmp_path: Path) -> None:
    path = write_net(tmp_path / "model.onnx", 8)
    sets = ("max_batch_size=256", "batch_sizes=1,256", "preferred_batch_sizes=64,256", "concurrency=1,512")
    found = cells(site, path, sets=sets, instances=(1, 24), precisions=("fp32",))
    assert [cell.dynamic.instances for cell in found] == [1, 24]
    for cell in found:
        assert (cell.dynamic.max_batch_size, cell.dynamic.preferred_batch_sizes) == (256, (64, 256))
        assert (cell.offline.batch_sizes, cell.online.concurrency) == ((1, 256), (1, 512))
    plain = cells(site, path, precisions=("fp32",))
    assert len({cell.name for cell in (*found, *plain)}) == 3
