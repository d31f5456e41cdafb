"""The IR version of an ONNX file, against ONNX's table of released versions (docs/Versioning.md)."""

from __future__ import annotations

from pathlib import Path

import onnx
import pytest
from onnx import ModelProto, TensorProto, helper

from servegrid.domain.releases import load_releases
from servegrid.formats.onnx.writing import lowest_ir_version, write


@pytest.mark.parametrize(
    ("opset", "ir"), [(8, 3), (9, 4), (10, 5), (11, 6), (12, 7), (13, 7), (15, 8), (18, 8), (19, 9), (21, 10)]
)
def test_ir_version_is_the_lowest_for_the_opset(opset: int, ir: int) -> None:
    model = ModelProto(ir_version=13, opset_import=[helper.make_opsetid("", opset)])
    assert lowest_ir_version(model) == ir


def test_release_that_takes_an_opset_takes_its_ir_version() -> None:
    known = [r for r in load_releases().releases.values() if r.onnx_opset and r.onnx_ir]
    assert len(known) >= 4
    for release in known:
        for opset in range(13, release.onnx_opset + 1):
            model = ModelProto(opset_import=[helper.make_opsetid("", opset)])
            assert lowest_ir_version(model) <= release.onnx_ir


def test_other_operator_sets_need_no_newer_ir_version() -> None:
    sets = [("", 13), ("com.microsoft", 1), ("ai.onnx.ml", 2)]
    model = ModelProto(opset_import=[helper.make_opsetid(*entry) for entry in sets])
    assert lowest_ir_version(model) == 7
    model.opset_import[2].version = 4  # of ONNX 1.15
    assert lowest_ir_version(model) == 9


def test_unused_operator_sets_are_removed(tmp_path: Path) -> None:
    """As the quantizer leaves a graph: with all that ONNX Runtime knows, in the newest versions."""
    value = helper.make_tensor_value_info
    io = [value(name, TensorProto.FLOAT, ["batch"]) for name in ("x", "y")]
    branch = helper.make_graph(
        [helper.make_node("Gelu", ["x"], ["b"], domain="com.microsoft")],
        "branch",
        [],
        [value("b", TensorProto.FLOAT, ["batch"])],
    )
    yes = helper.make_node(
        "Constant", [], ["yes"], value=helper.make_tensor("v", TensorProto.BOOL, [], [True])
    )
    chosen = helper.make_node("If", ["yes"], ["y"], then_branch=branch, else_branch=branch)
    graph = helper.make_graph([yes, chosen], "graph", io[:1], io[1:])
    sets = [("", 13), ("ai.onnx.ml", 5), ("com.microsoft", 1), ("ai.onnx.preview", 1)]
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid(*s) for s in sets], ir_version=10)
    write(model, str(tmp_path / "model.onnx"))
    written = onnx.load(str(tmp_path / "model.onnx"))
    assert [(e.domain, e.version) for e in written.opset_import] == [("", 13), ("com.microsoft", 1)]
    assert written.ir_version == 7
