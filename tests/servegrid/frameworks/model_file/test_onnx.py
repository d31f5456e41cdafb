"""ONNX files, their samples and shapes: clear ones are read, each other has its own error."""

from __future__ import annotations

import io
import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
import yaml
from onnx import TensorProto as T
from onnx import helper

from servegrid.domain.spec import ModelSpec


def npy() -> bytes:
    file = io.BytesIO()
    np.save(file, np.ones((2, 6), np.float32))
    return file.getvalue()


NPY = npy()


def graph(
    axes: Any = ("n", 6),
    dtype: int = T.FLOAT,
    *,
    opset: int = 17,
    node: str = "Relu",
    out: Any = ("n", 6),
    x: str = "x",
    y: str = "y",
) -> Any:
    """x -> y by one node."""
    out_type = T.FLOAT if node == "ReduceSum" else dtype
    more = {"keepdims": 0} if node == "ReduceSum" else {}
    made = helper.make_graph(
        [helper.make_node(node, [x], [y], **more)],
        "g",
        [helper.make_tensor_value_info(x, dtype, axes)],
        [helper.make_tensor_value_info(y, out_type, out)],
    )
    return helper.make_model(made, opset_imports=[helper.make_opsetid("", opset)], ir_version=9)


def with_weights(location: str) -> Any:
    """A graph whose weights lie in another file."""
    weights = onnx.numpy_helper.from_array(np.ones((6, 3), np.float32), "w")
    made = helper.make_graph(
        [helper.make_node("MatMul", ["x", "w"], ["y"])],
        "g",
        [helper.make_tensor_value_info("x", T.FLOAT, ["n", 6])],
        [helper.make_tensor_value_info("y", T.FLOAT, ["n", 3])],
        [weights],
    )
    model = helper.make_model(made, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)
    onnx.external_data_helper.set_external_data(weights := model.graph.initializer[0], location)
    weights.ClearField("raw_data")
    weights.data_location = T.EXTERNAL
    return model


def in_a_constant(location: str) -> Any:
    """A graph of a constant whose value lies in another file."""
    value = with_weights(location).graph.initializer[0]
    made = helper.make_graph(
        [helper.make_node("Constant", [], ["w"], value=value), helper.make_node("MatMul", ["x", "w"], ["y"])],
        "g",
        [helper.make_tensor_value_info("x", T.FLOAT, ["n", 6])],
        [helper.make_tensor_value_info("y", T.FLOAT, ["n", 3])],
    )
    return helper.make_model(made, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)


def changed(model: Any, change: Callable[[Any], Any]) -> Any:
    change(model)
    return model


def grow(model: Any) -> None:
    model.graph.initializer[0].dims[:] = [2**16, 2**14]


ONNX: dict[str, tuple[Any, dict[str, Any], str]] = {
    "garbage": (b"\x93\x00garbage" * 20, {}, "not an ONNX model"),
    "empty": (b"", {}, "not an ONNX model: it has no graph"),
    "html": (b"<!doctype html><html><body>404</body></html>", {}, "not an ONNX model"),
    "truncated": (graph().SerializeToString()[:-9], {}, "not an ONNX model"),
    "pickle": (b"", {"file": "pickle"}, "not an ONNX model"),
    "cycle": (
        changed(graph(), lambda m: m.graph.node[0].input.__setitem__(0, "y")),
        {},
        "ONNX Runtime .* cannot run it",
    ),
    "domain": (
        changed(graph(), lambda m: setattr(m.graph.node[0], "domain", "evil")),
        {},
        "ONNX Runtime .* cannot run it",
    ),
    "no-input": (changed(graph(), lambda m: m.graph.ClearField("input")), {}, "no inputs|cannot run it"),
    "no-node": (changed(graph(), lambda m: m.graph.ClearField("node")), {}, "cannot run it|does not run"),
    "opset-0": (graph(opset=0), {}, "cannot run it"),
    "opset": (graph(opset=99), {}, "ONNX Runtime .* cannot run it: .*pset"),
    "input-above": (graph(x="../x"), {}, "name: .*'../x'"),
    "output-above": (graph(y="a/../y"), {}, "name: .*'a/../y'"),
    "output-of-two-lines": (graph(y="a\nb"), {}, "name: .*unprintable"),
    "operator": (graph(node="NoSuchOperator"), {}, "ONNX Runtime .* cannot run it: .*NoSuchOperator"),
    "external-missing": (with_weights("w.bin"), {}, "its external data: .*w.bin"),
    "external-outside": (with_weights("../w.bin"), {}, r"'../w.bin'; .*file's folder"),
    "external-above": (with_weights("/etc/hostname"), {}, r"'/etc/hostname'; .*file's folder"),
    "external-in-a-constant": (in_a_constant("../w.bin"), {}, r"'../w.bin'; .*file's folder"),
    "external-link": (with_weights("link.bin"), {}, "its external data: "),
    "external-short": (with_weights("short.bin"), {}, "ONNX Runtime .* cannot run it: .*tensor w "),
    "external-unnamed": (with_weights(""), {}, "its external data: |file's folder"),
    "over-2-gb": (changed(with_weights("there.bin"), grow), {}, "over 2 GB"),
    "zero-axis": (graph(("n", 0), out=("n", 0)), {}, r"input 'x' is \[-1, 0\]: an axis of 0"),
    "zero-batch": (graph((0, 6), out=(0, 6)), {}, r"input 'x' is \[0, 6\]: an axis of 0"),
    "huge-axis": (graph(("n", 2**40), out=("n", 2**40)), {}, "over 4 GiB; give --samples"),
    "no-axis": (graph((), out=()), {}, "input 'x' is one number: it has no axis that counts samples"),
    "part-of-a-batch": (
        graph((4, 6), out=(4, 6)),
        {"samples": {"x": np.ones((6, 6), np.float32)}},
        "--samples: the model takes batches of 4 only: give a multiple of 4",
    ),
    "free-axis": (graph(("n", "m"), out=("n", "m")), {}, r"input 'x' has free axes; give --shape x=1,\?"),
    "output-without-batch": (graph(node="ReduceSum", out=()), {}, "output 'y' has no batch axis"),
    "text": (graph(dtype=T.STRING, node="Identity"), {}, "input 'x' is string; served are bool"),
    "shape-name": (graph(), {"shapes": {"z": [1, 6]}}, "--shape: unknown input 'z': known: x"),
    "shape-rank": (graph(), {"shapes": {"x": [1, 6, 2]}}, "--shape: input 'x' has 2 axes"),
    "shape-axis": (graph(), {"shapes": {"x": [1, 7]}}, r"--shape: .*\[1, 7\] does not fit"),
    "pickled": (graph(), {"samples": {"x": np.array([{}, []], dtype=object)}}, "--samples .*not an .npz"),
    "pickle-for-samples": (graph(), {"samples": "pickle"}, "--samples .*not an .npz"),
    "one-array": (graph(), {"samples": NPY}, "--samples .*one array"),
    "not-a-zip": (graph(), {"samples": b"no zip"}, "--samples .*not an .npz file of plain arrays"),
    "array-name": (graph(), {"samples": {"X": np.ones((2, 6))}}, "--samples: unknown input 'X': known: x"),
    "array-missing": (graph(), {"samples": {}}, "--samples: no array 'x'; found: none"),
    "array-type": (
        graph(),
        {"samples": {"x": np.ones((2, 6))}},
        "--samples: 'x' is float64, .* takes float32",
    ),
    "array-shape": (graph(), {"samples": {"x": np.ones((2, 7), np.float32)}}, r"--samples: .* does not fit"),
    "array-rank": (graph(), {"samples": {"x": np.ones((2, 6, 1), np.float32)}}, "--samples: .* has 2 axes"),
    "array-empty": (graph(), {"samples": {"x": np.ones((0, 6), np.float32)}}, "at least one"),
}

CLEAR: dict[str, tuple[Any, dict[str, Any]]] = {
    "plain": (graph(), {}),
    "shaped": (graph(("n", "m"), out=("n", "m")), {"shapes": {"x": [1, 4]}}),
    "sampled": (graph(("n", "m"), out=("n", "m")), {"samples": {"x": np.ones((5, 3), np.float32)}}),
    "external": (with_weights("there.bin"), {}),
    "fixed-batch": (graph((4, 6), out=(4, 6)), {}),
    "batch-only": (graph(("n",), out=("n",)), {}),
}


@pytest.fixture(scope="module")
def answers(files: Path, ask: Callable[..., Any]) -> dict[str, str]:
    """The message of one process for every file."""
    (files / "there.bin").write_bytes(np.ones((6, 3), np.float32).tobytes())
    (files / "short.bin").write_bytes(b"1234")
    (files / "link.bin").symlink_to("/etc/hostname")
    cases = []
    for name, (content, more, *_) in {**ONNX, **CLEAR}.items():
        content = content if isinstance(content, bytes) else content.SerializeToString()
        (files / f"{name}.onnx").write_bytes(content)
        case = {"id": name, "file": f"{name}.onnx"} | more
        if "samples" in more:
            case["samples"] = _samples_file(files, name, more["samples"])
        cases.append(case)
    (files / "cases.json").write_text(json.dumps(cases))
    return ask("onnx", "cases = json.load(open(f'{folder}/cases.json'))")


def _samples_file(files: Path, name: str, samples: Any) -> str:
    """The name of a file with these arrays or bytes, or of one that is there."""
    if isinstance(samples, str):
        return samples
    if isinstance(samples, bytes):
        (files / f"{name}.npz").write_bytes(samples)
    else:
        np.savez(files / f"{name}.npz", **samples)
    return f"{name}.npz"


@pytest.mark.parametrize("name", ONNX)
@pytest.mark.fault(
    "Inputs: ONNX files and samples",
    "one line that says what is wrong with the file; nothing of it is kept or run",
)
def test_unclear_file(name: str, answers: dict[str, str], happened: Any) -> None:
    message = answers[name]
    assert re.search(ONNX[name][2], message), message
    assert "\n" not in message
    assert not Path("ran").exists()
    happened(message)


def test_clear_files_are_model_folders(files: Path, answers: dict[str, str]) -> None:
    assert {name: answers[name] for name in CLEAR} == dict.fromkeys(CLEAR, "ok")
    specs = {
        name: ModelSpec.model_validate(yaml.safe_load((files / "made" / name / "model.yaml").read_text()))
        for name in CLEAR
    }
    assert {name: spec.inputs[0].shape for name, spec in specs.items()} == {
        "plain": (-1, 6), "shaped": (-1, 4), "sampled": (-1, 3), "external": (-1, 6),
        "fixed-batch": (4, 6), "batch-only": (-1,),
    }  # fmt: skip
    assert {name: spec.outputs[0].shape[0] for name, spec in specs.items()}["fixed-batch"] == 4
    assert {name for name, spec in specs.items() if spec.variants["file"].serving.max_batch_size == 0} == {
        "fixed-batch"
    }
    assert {spec.formats["onnx"].precisions for spec in specs.values()} == {("fp32", "fp16")}
    assert {spec.opset for spec in specs.values()} == {17}
    assert {name: spec.variants["file"].samples for name, spec in specs.items()}["sampled"] == 5
    whole = onnx.load(str(files / "made" / "external" / "data" / "model.onnx"), load_external_data=False)
    assert len(whole.graph.initializer[0].raw_data) == 6 * 3 * 4
    assert (files / "made" / "plain" / "data" / "model.onnx").read_bytes() == (
        files / "plain.onnx"
    ).read_bytes()
