"""Faults in what is served, on every model that they apply to: the layer that must catch each does."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper

from servegrid.checks.verdict import Correctness
from servegrid.domain.errors import StepError
from servegrid.domain.root import ROOT
from servegrid.formats import artifacts
from servegrid.formats.runtime_files import MODEL as MODEL_FILE
from servegrid.plan.models import known_models
from servegrid.store.build import run_step
from tasks import convert
from tasks.correctness import Proofs, correctness

pytestmark = pytest.mark.check

MODELS = known_models(ROOT / "models")
ALIKE_INPUTS = {"bert_large_qa": ("input__1", "input__2"), "wide_and_deep": ("ad_id_ctr", "campaign_id_ctr")}
"""Models with two inputs of one shape, type and range: segment ids and mask, two rates of clicks."""


@pytest.fixture
def served(server: Any, tmp_path: Path) -> Iterator[Callable[..., Correctness]]:
    """The result of the correctness check after a function changed the artifact or the hosted runtime."""
    loaded: list[str] = []

    def serve(
        tiny: Any,
        change: Callable[[onnx.ModelProto], None] | None = None,
        runtime: Callable[[str], str] | None = None,
    ) -> Correctness:
        artifact = tmp_path / "artifact"
        shutil.copytree(tiny.folder(tiny.converted), artifact)
        if change:
            model = onnx.load(str(artifact / "model.onnx"))
            change(model)
            onnx.checker.check_model(model)
            onnx.save(model, str(artifact / "model.onnx"))
        name = f"broken_{tiny.plugin.spec.name}"
        server.write(name, artifact, artifacts.read_interface(artifact), serving=tiny.cell.dynamic)
        if runtime:
            code = server.repository / name / "1" / MODEL_FILE
            code.write_text(runtime(code.read_text()))
        server.client.load_model(name)
        loaded.append(name)
        at = tiny.at.model_copy(update={"logs": tmp_path / "campaign" / "logs"})
        proofs = Proofs(
            prepared=tiny.prepared,
            samples=tiny.samples,
            reference=tiny.reference,
            converted_answers=None,
        )
        found: Correctness = correctness.fn(tiny.plugin, tiny.cell, server.endpoint(name), proofs, at)
        return found

    yield serve
    for name in loaded:
        server.client.unload_model(name)


def layers(found: Correctness) -> set[str]:
    """The first word of each failure: tensor, invariance, or the metric's name."""
    return {failure.split()[0].rstrip(":") for failure in found.failures}


@pytest.mark.parametrize("model", MODELS)
def test_a_model_that_is_not_broken_has_no_failure(model: str, tiny_cell: Any, served: Any) -> None:
    found = served(tiny_cell(model))
    assert found.failures == ()
    assert found.scores is not None


@pytest.mark.parametrize("model", MODELS)
def test_permuted_weights_of_one_layer_are_caught_by_tensors(model: str, tiny_cell: Any, served: Any) -> None:
    tiny = tiny_cell(model)

    def permute(graph: onnx.ModelProto) -> None:
        """Turn the output channels of the largest matrix or kernel round."""
        weights = [w for w in graph.graph.initializer if w.data_type == onnx.TensorProto.FLOAT]
        largest = max((w for w in weights if len(w.dims) > 1), key=lambda w: int(np.prod(w.dims)))
        values = numpy_helper.to_array(largest)
        largest.CopyFrom(numpy_helper.from_array(values[::-1].copy(), largest.name))

    # The metric need not notice: what skips nnU-Net's deepest level carries most of its answer.
    assert "tensor" in layers(served(tiny, permute))


@pytest.mark.parametrize("model", ALIKE_INPUTS)
def test_swapped_inputs_are_caught_by_tensors(model: str, tiny_cell: Any, served: Any) -> None:
    one, other = ALIKE_INPUTS[model]

    def swap(graph: onnx.ModelProto) -> None:
        turned = {one: other, other: one}
        for node in graph.graph.node:
            node.input[:] = [turned.get(name, name) for name in node.input]

    assert "tensor" in layers(served(tiny_cell(model), swap))


def read_padding_as_text(graph: onnx.ModelProto) -> None:
    """BERT: use 1 wherever the attention mask was."""
    node = helper.make_node("Max", ["input__2", "one"], ["every_token"])
    for user in graph.graph.node:
        user.input[:] = ["every_token" if name == "input__2" else name for name in user.input]
    graph.graph.node.insert(0, node)
    graph.graph.initializer.append(numpy_helper.from_array(np.array(1, np.int32), "one"))


def read_padding_as_sound(graph: onnx.ModelProto) -> None:
    """FastPitch, whose mask is where a token is 0: no token is less than that."""
    (padding,) = (n for n in graph.graph.node if n.op_type == "Equal" and "INPUT__0" in n.input)
    padding.op_type = "Less"


@pytest.mark.parametrize(
    ("model", "ignore"), [("bert_large_qa", read_padding_as_text), ("fastpitch", read_padding_as_sound)]
)
def test_an_ignored_mask_is_caught_by_tensors(
    model: str, ignore: Callable[[onnx.ModelProto], None], tiny_cell: Any, served: Any
) -> None:
    assert "tensor" in layers(served(tiny_cell(model), ignore))


STALE = """

def _stale(found):
    rows = {name: np.concatenate([each[name] for each in found]) for name in found[0]}
    return [*found[:-1], {name: rows[name][: len(array)] for name, array in found[-1].items()}]
"""


@pytest.mark.parametrize("model", MODELS)
def test_a_stale_row_in_the_batch_is_caught_by_tensors(model: str, tiny_cell: Any, served: Any) -> None:
    """The runtime gives the last request of a batch the first one's row, as a buffer that was not cleared."""

    def stale(code: str) -> str:
        call = "pipeline.run(self._session, inputs)"
        assert code.count(call) == 1
        return code.replace(call, f"_stale({call})") + STALE

    found = served(tiny_cell(model), runtime=stale)
    assert "tensor" in layers(found)


@pytest.mark.parametrize("model", MODELS)
def test_an_overflow_in_half_precision_is_caught_by_conversion(
    model: str, tiny_cell: Any, tmp_path: Path
) -> None:
    """The network's output goes through 1e6 and back: half precision cannot hold the number."""
    tiny = tiny_cell(model, precision="fp16")
    exported = tmp_path / "exported"
    shutil.copytree(tiny.folder(tiny.exported), exported)
    graph = onnx.load(str(exported / "model.onnx"))
    output = next(
        o for o in graph.graph.output if o.type.tensor_type.elem_type == onnx.TensorProto.FLOAT
    ).name
    for node in graph.graph.node:
        node.output[:] = ["_" + n if n == output else n for n in node.output]
        node.input[:] = ["_" + n if n == output else n for n in node.input]
    # The sum makes sure that the value is not 0.
    for name, number in {"one": 1.0, "hundred": 1e2, "ten_thousand": 1e4, "million": 1e6}.items():
        graph.graph.initializer.append(numpy_helper.from_array(np.array(number, np.float32), name))
    value = "_" + output
    for kind, constant, result in (
        ("Add", "one", "_sum"),
        ("Mul", "hundred", "_more"),
        ("Mul", "ten_thousand", "_most"),
        ("Div", "million", "_back"),
        ("Sub", "one", output),
    ):
        graph.graph.node.append(helper.make_node(kind, [value, constant], [result]))
        value = result
    onnx.save(graph, str(exported / "model.onnx"))
    output_folder = tmp_path / "converted"
    output_folder.mkdir()
    fields = convert.request(tiny.plugin, tiny.cell.product, tiny.exported).fields
    with pytest.raises(StepError, match=rf"\b{output}\b.*\d"):
        run_step(
            "convert_onnx",
            fields=fields,
            inputs={},
            output=output_folder,
            at=tiny.at.model_copy(update={"logs": tmp_path}),
            files={"source": exported},
        )
