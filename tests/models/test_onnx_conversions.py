"""Fused and quantized ONNX graphs of the tiny models: what is in them, and what is refused."""

from __future__ import annotations

import json
import shutil
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, numpy_helper

from servegrid.domain.errors import StepError
from servegrid.store.build import Job, run_step
from tasks import convert, export

pytestmark = pytest.mark.check

FUSED = {"Attention": 2, "EmbedLayerNormalization": 1, "BiasGelu": 2, "SkipLayerNormalization": 4}
"""The operators of tiny BERT's two layers."""

DEEP = """
import json, sys, torch
from transformers import BertConfig, BertForQuestionAnswering
from servegrid.frameworks.framework_steps import export
from servegrid.store.build import Job
job = Job.model_validate_json(open(sys.argv[1]).read())
folder = job.inputs["prepared"]
settings = json.loads((folder / "bert_config.json").read_text())
settings |= {"num_hidden_layers": 24, "num_attention_heads": 16, "hidden_size": 64, "intermediate_size": 64}
(folder / "bert_config.json").write_text(json.dumps(settings))
torch.manual_seed(0)
torch.save(BertForQuestionAnswering(BertConfig(**settings)).state_dict(), folder / "checkpoint.pt")
export(job)
print("true")
"""
"""Prepares a BERT of 24 layers with tiny's vocabulary and questions, and exports it, in one process."""


def graph_of(folder: Path) -> onnx.ModelProto:
    return onnx.load(str(folder / "model.onnx"))


def operators(model: onnx.ModelProto) -> Counter[str]:
    return Counter(node.op_type for node in model.graph.node)


def weights(model: onnx.ModelProto, *types: int) -> int:
    """How many numbers the constants of these types hold."""
    return sum(int(np.prod(w.dims)) for w in model.graph.initializer if w.data_type in types)


@pytest.fixture
def run(tmp_path: Path) -> Callable[..., Path]:
    """`run(tiny, fields, source)`: the conversion step with these fields changed, from this folder."""

    def run_conversion(tiny: Any, change: dict[str, Any], source: Path | None = None) -> Path:
        output = tmp_path / "converted"
        output.mkdir()
        files = {"source": source or tiny.folder(tiny.exported)}
        if tiny.calibration:
            files["calibration"] = tiny.folder(tiny.calibration)
        fields = convert.request(tiny.plugin, tiny.cell.product, tiny.exported).fields | change
        at = tiny.at.model_copy(update={"logs": tmp_path})
        run_step("convert_onnx", fields=fields, inputs={}, output=output, at=at, files=files)
        return output

    return run_conversion


def test_bert_is_fused_in_single_and_half_precision(tiny_cell: Any) -> None:
    sizes = {}
    for precision, type_ in (("fp32", TensorProto.FLOAT), ("fp16", TensorProto.FLOAT16)):
        tiny = tiny_cell("bert_large_qa", precision=precision)
        folder = tiny.folder(tiny.converted)
        model, export = graph_of(folder), graph_of(tiny.folder(tiny.exported))
        assert {name: operators(model)[name] for name in FUSED} == FUSED
        assert operators(model).total() < operators(export).total() / 4
        assert weights(model, type_) > 0.99 * weights(model, TensorProto.FLOAT, TensorProto.FLOAT16)
        assert ("com.microsoft", 1) in {(entry.domain, entry.version) for entry in model.opset_import}
        assert model.ir_version == 7
        sizes[precision] = json.loads((folder / "sizes.json").read_text())
    exported = (tiny.folder(tiny.exported) / "model.onnx").stat().st_size
    assert [entry["export"] for entry in sizes.values()] == [exported, exported]
    assert 0.45 < sizes["fp16"]["model"] / exported < 0.55


def test_bert_of_24_layers_is_fused_as_the_spec_of_full_wants(
    tiny_cell: Any, run: Callable[..., Path], child_in: Any, tmp_path: Path
) -> None:
    """As many layers and heads as BERT-large's, each as narrow as can be, with random weights."""
    tiny = tiny_cell("bert_large_qa")
    prepared, exported = tmp_path / "prepared", tmp_path / "exported"
    shutil.copytree(tiny.folder(tiny.prepared), prepared)
    exported.mkdir()
    job = Job(
        step="export",
        fields=export.request(tiny.plugin, tiny.cell.product, tiny.prepared).fields,
        inputs={"prepared": prepared},
        plugin=tiny.at.plugin,
        output=exported,
    )
    (tmp_path / "export.json").write_text(job.model_dump_json())
    child = child_in(tiny.plugin.folder)
    assert child.finish(child.start(DEEP, tmp_path / "export.json"))
    full = tiny.plugin.spec.variants["full"].convert.onnx.optimize
    assert (full.num_heads, full.fused["Attention"]) == (16, 24)
    folder = run(tiny, {"optimize": full.model_dump() | {"hidden_size": 64}}, exported)
    assert {name: operators(graph_of(folder))[name] for name in full.fused} == full.fused


def test_fewer_fused_nodes_than_the_spec_wants_end_the_step(tiny_cell: Any, run: Callable[..., Path]) -> None:
    tiny = tiny_cell("bert_large_qa")
    optimize = convert.request(tiny.plugin, tiny.cell.product, tiny.exported).fields["optimize"]
    more = optimize | {"fused": FUSED | {"Attention": 3, "BiasGelu": 9}}
    wrong = r"Attention\b.*\b2\b.*\b3\b.*BiasGelu\b.*\b2\b.*\b9\b"
    with pytest.raises(StepError, match=wrong):
        run(tiny, {"optimize": more})


@pytest.mark.parametrize("model", ["bert_large_qa", "resnet50"])
def test_int8_has_its_weights_in_int8_and_float_inputs_and_outputs(model: str, tiny_cell: Any) -> None:
    tiny = tiny_cell(model, precision="int8")
    exported, converted = tiny.folder(tiny.exported), tiny.folder(tiny.converted)
    before, after = graph_of(exported), graph_of(converted)
    assert operators(after)["QuantizeLinear"] >= 10
    assert operators(after)["DequantizeLinear"] > operators(after)["QuantizeLinear"]
    float_weights = weights(before, TensorProto.FLOAT)
    assert weights(after, TensorProto.INT8) > 0.95 * float_weights
    assert weights(after, TensorProto.FLOAT) < 0.05 * float_weights
    sizes = json.loads((converted / "sizes.json").read_text())
    assert 0.25 < sizes["model"] / sizes["export"] < 0.36  # the nodes of so small a graph weigh, too
    for tensors in ("input", "output"):
        types = [
            [(t.name, t.type.tensor_type.elem_type) for t in getattr(m.graph, tensors)]
            for m in (before, after)
        ]
        assert types[0] == types[1]
    zeros = [w for w in after.graph.initializer if w.name.endswith("zero_point")]
    assert zeros
    assert all((numpy_helper.to_array(w) == 0).all() for w in zeros)  # symmetric, as TensorRT wants it
    assert [e.version for e in after.opset_import if not e.domain] == [13]
    assert after.ir_version == 7


def test_kept_operators_stay_in_float(tiny_cell: Any) -> None:
    tiny = tiny_cell("fastpitch", precision="int8")
    nodes = graph_of(tiny.folder(tiny.converted)).graph.node
    dequantized = {name for node in nodes if node.op_type == "DequantizeLinear" for name in node.output}
    weighed = {n.name: n.input[1] in dequantized for n in nodes if n.op_type in ("Conv", "MatMul")}
    assert len([n for n in weighed if n.startswith("/duration/")]) == 3
    assert not any(is_int8 for name, is_int8 in weighed.items() if name.startswith("/duration/"))
    assert all(is_int8 for name, is_int8 in weighed.items() if name.startswith("/pitch/"))


def test_keeping_a_node_in_float_that_is_not_there_is_refused(
    tiny_cell: Any, run: Callable[..., Path]
) -> None:
    tiny = tiny_cell("wide_and_deep", precision="int8")
    with pytest.raises(StepError, match=r"keep_float.*'/durations/'"):
        run(tiny, {"int8": {"samples": 4, "keep_float": ["/durations/"]}})


@pytest.mark.parametrize("model", ["bert_large_qa", "fastpitch", "wide_and_deep"])
def test_a_wrong_scale_is_caught_by_conversion(
    model: str, tiny_cell: Any, run: Callable[..., Path], tmp_path: Path
) -> None:
    """The scales of one layer's weights are 8 times what they should be. (nnU-Net's instance normalization
    makes up for it; ResNet is so sure of the two images of its example that only served tensors show it.)"""
    tiny = tiny_cell(model, precision="int8")
    source = tmp_path / "broken"
    shutil.copytree(tiny.folder(tiny.converted), source)
    broken = graph_of(source)
    ranked = [w for w in broken.graph.initializer if w.data_type == TensorProto.INT8 and len(w.dims) > 1]
    largest = max(ranked, key=lambda w: int(np.prod(w.dims)))
    (reader,) = (n for n in broken.graph.node if largest.name in n.input)
    (scale,) = (w for w in broken.graph.initializer if w.name == reader.input[1])
    scale.CopyFrom(numpy_helper.from_array(8 * numpy_helper.to_array(scale), scale.name))
    onnx.save(broken, str(source / "model.onnx"))
    outputs = "|".join(output.name for output in tiny.plugin.spec.outputs)
    with pytest.raises(StepError, match=rf"\b({outputs})\b.*\d"):
        run(tiny, {"precision": "fp32"}, source)  # takes the graph as it is, and proves it
