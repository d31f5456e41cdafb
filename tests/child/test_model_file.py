"""Model files that are clear, and those that are not: each has its own error, in one line."""

from __future__ import annotations

import io
import json
import os
import pickle
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

from tasks.core.spec import ModelSpec

ONE_LINE = "one line that says what is wrong with the file; nothing of it is kept or run"


class Runs:
    """What a hostile pickle holds: unpickled, it would leave the file `ran` in the working folder."""

    def __reduce__(self) -> Any:
        return (os.system, ("touch ran",))


def npy() -> bytes:
    file = io.BytesIO()
    np.save(file, np.ones((2, 6), np.float32))
    return file.getvalue()


NPY = npy()
READ = """
import json, sys
from pathlib import Path
from tasks.child.model_file import read_model_file
from tasks.core.build import Job
from tasks.core.errors import UnsupportedError
def read(kind, folder, case):
    output = Path(folder) / "made" / case["id"]
    output.mkdir(parents=True)
    inputs = {"file": Path(folder) / case["file"]}
    if "samples" in case:
        inputs["samples"] = Path(folder) / case["samples"]
    fields = {"kind": kind, "name": "net", "shapes": case.get("shapes", {}), "requires": []}
    try:
        read_model_file(Job(step="", fields=fields, inputs=inputs, plugin=output, output=output))
        return "ok"
    except UnsupportedError as error:
        return str(error)
folder, kind = sys.argv[1:]
"""
REPORT = "print('\\n' + json.dumps({case['id']: read(kind, folder, case) for case in cases}))\n"


def graph(
    axes: Any = ("n", 6), dtype: int = T.FLOAT, *, opset: int = 17, node: str = "Relu", out: Any = ("n", 6)
) -> Any:
    """x -> y by one node."""
    out_type = T.FLOAT if node == "ReduceSum" else dtype
    more = {"keepdims": 0} if node == "ReduceSum" else {}
    made = helper.make_graph(
        [helper.make_node(node, ["x"], ["y"], **more)],
        "g",
        [helper.make_tensor_value_info("x", dtype, axes)],
        [helper.make_tensor_value_info("y", out_type, out)],
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


PICKLE = pickle.dumps(Runs())

ONNX: dict[str, tuple[Any, dict[str, Any], str]] = {
    "garbage": (b"\x93\x00garbage" * 20, {}, "not an ONNX model"),
    "empty": (b"", {}, "not an ONNX model: it has no graph"),
    "html": (b"<!doctype html><html><body>404</body></html>", {}, "not an ONNX model"),
    "truncated": (graph().SerializeToString()[:-9], {}, "not an ONNX model"),
    "pickle": (PICKLE, {}, "not an ONNX model"),
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
    "operator": (graph(node="NoSuchOperator"), {}, "ONNX Runtime .* cannot run it: .*NoSuchOperator"),
    "external-missing": (with_weights("w.bin"), {}, "its external data: .*w.bin"),
    "external-outside": (with_weights("../w.bin"), {}, r"'../w.bin'; it must lie beside the file"),
    "external-above": (with_weights("/etc/hostname"), {}, r"'/etc/hostname'; it must lie beside the file"),
    "external-in-a-constant": (in_a_constant("../w.bin"), {}, r"'../w.bin'; it must lie beside the file"),
    "external-link": (with_weights("link.bin"), {}, "its external data: "),
    "external-short": (with_weights("short.bin"), {}, "ONNX Runtime .* cannot run it: .*tensor w "),
    "external-unnamed": (with_weights(""), {}, "its external data: |it must lie beside the file"),
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
    "shape-name": (graph(), {"shapes": {"z": [1, 6]}}, "--shape: no input 'z'; its inputs: x"),
    "shape-rank": (graph(), {"shapes": {"x": [1, 6, 2]}}, "--shape: input 'x' has 2 axes"),
    "shape-axis": (graph(), {"shapes": {"x": [1, 7]}}, r"--shape: .*\[1, 7\] does not fit"),
    "pickled": (graph(), {"samples": {"x": np.array([{}, []], dtype=object)}}, "--samples .*not an .npz"),
    "pickle-for-samples": (graph(), {"samples": PICKLE}, "--samples .*not an .npz"),
    "one-array": (graph(), {"samples": NPY}, "--samples .*one array"),
    "not-a-zip": (graph(), {"samples": b"no zip"}, "--samples .*not an .npz file of plain arrays"),
    "array-name": (graph(), {"samples": {"X": np.ones((2, 6))}}, "--samples: no input 'X'; its inputs: x"),
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
def onnx_answers(
    tmp_path_factory: pytest.TempPathFactory, run_python: Callable[..., str]
) -> tuple[Path, dict[str, str]]:
    """What one process says of every ONNX file."""
    folder = tmp_path_factory.mktemp("files")
    (folder / "there.bin").write_bytes(np.ones((6, 3), np.float32).tobytes())
    (folder / "short.bin").write_bytes(b"1234")
    (folder / "link.bin").symlink_to("/etc/hostname")
    cases = []
    for name, (content, more, *_) in {**ONNX, **CLEAR}.items():
        content = content if isinstance(content, bytes) else content.SerializeToString()
        (folder / f"{name}.onnx").write_bytes(content)
        case = {"id": name, "file": f"{name}.onnx"} | more
        if "samples" in more:
            case["samples"] = f"{name}.npz"
            if isinstance(more["samples"], bytes):
                (folder / f"{name}.npz").write_bytes(more["samples"])
            else:
                np.savez(folder / f"{name}.npz", **more["samples"])
        cases.append(case)
    (folder / "cases.json").write_text(json.dumps(cases))
    script = READ + "cases = json.load(open(f'{folder}/cases.json'))\n" + REPORT
    return folder, json.loads(run_python(script, folder, "onnx").splitlines()[-1])


@pytest.mark.parametrize("name", ONNX)
@pytest.mark.fault("Inputs: ONNX files and samples", ONE_LINE)
def test_unclear_onnx_file(name: str, onnx_answers: tuple[Path, dict[str, str]], happened: Any) -> None:
    said = onnx_answers[1][name]
    assert re.search(ONNX[name][2], said), said
    assert "\n" not in said
    assert not Path("ran").exists()
    happened(said)


def test_clear_onnx_files_are_model_folders(onnx_answers: tuple[Path, dict[str, str]]) -> None:
    folder, said = onnx_answers
    assert {name: said[name] for name in CLEAR} == dict.fromkeys(CLEAR, "ok")
    specs = {
        name: ModelSpec.model_validate(yaml.safe_load((folder / "made" / name / "model.yaml").read_text()))
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
    whole = onnx.load(str(folder / "made" / "external" / "data" / "model.onnx"), load_external_data=False)
    assert len(whole.graph.initializer[0].raw_data) == 6 * 3 * 4
    assert (folder / "made" / "plain" / "data" / "model.onnx").read_bytes() == (
        folder / "plain.onnx"
    ).read_bytes()


TORCHSCRIPT = """
import pickle, zipfile
import torch
class Two(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = torch.nn.Embedding(2, 4)
    def forward(self, ids, scale):
        h = self.embed(ids).mean(1) * scale
        return h, h.argmax(1, keepdim=True)
class Named(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> dict[str, torch.Tensor]:
        return {"y": x}
example = (torch.zeros(2, 5, dtype=torch.int64), torch.ones(2, 1))
torch.jit.trace(Two().eval(), example).save(f"{folder}/two.pt")
torch.jit.trace(Named().eval(), torch.ones(2, 5), strict=False).save(f"{folder}/named.pt")
torch.save({"a": torch.ones(2)}, f"{folder}/state.pt")
class Runs:
    def __reduce__(self):
        import os
        return (os.system, ("touch ran",))
torch.save(Runs(), f"{folder}/hostile.pt")
torch.save(Runs(), f"{folder}/hostile-legacy.pt", _use_new_zipfile_serialization=False)
whole = (Path(folder) / "two.pt").read_bytes()
(Path(folder) / "truncated.pt").write_bytes(whole[: len(whole) // 2])
(Path(folder) / "empty.pt").write_bytes(b"")
(Path(folder) / "text.pt").write_text("<!doctype html>")
def rewrite(name, part, content):
    with zipfile.ZipFile(f"{folder}/two.pt") as old, zipfile.ZipFile(f"{folder}/{name}.pt", "w") as new:
        for entry in old.namelist():
            new.writestr(entry, content if entry.endswith(part) else old.read(entry))
rewrite("hostile-data", "/data.pkl", pickle.dumps(Runs(), protocol=2))
rewrite("hostile-constants", "/constants.pkl", pickle.dumps(Runs(), protocol=2))
rewrite("hostile-code", ".py", b"import os; os.system('touch ran')")
rewrite("no-code", ".py", b"")
with zipfile.ZipFile(f"{folder}/zip.pt", "w") as file:
    file.writestr("a", "b")
names = ("hostile", "hostile-legacy", "hostile-data", "hostile-constants", "hostile-code", "no-code", "zip")
names += ("truncated", "empty", "text")
cases = [{"id": name, "file": f"{name}.pt", "shapes": {"ids": [1, 5]}} for name in names] + [
    {"id": "pickle", "file": "pickle.pt"},
    {"id": "two", "file": "two.pt", "samples": "two.npz"},
    {"id": "no-shape", "file": "two.pt", "shapes": {"ids": [1, 5]}},
    {"id": "no-type", "file": "two.pt", "shapes": {"ids": [1, 5], "scale": [1, 1]}},
    {"id": "named", "file": "named.pt", "shapes": {"x": [1, 5]}},
    {"id": "state", "file": "state.pt"},
]
"""


@pytest.fixture(scope="module")
def torchscript_answers(
    tmp_path_factory: pytest.TempPathFactory, run_python: Callable[..., str]
) -> tuple[Path, dict[str, str]]:
    """What one process says of every TorchScript file."""
    folder = tmp_path_factory.mktemp("files")
    np.savez(folder / "two.npz", ids=np.array([[0, 1, 1, 0, 1]] * 3), scale=np.ones((3, 1), np.float32))
    (folder / "pickle.pt").write_bytes(PICKLE)
    return folder, json.loads(run_python(READ + TORCHSCRIPT + REPORT, folder, "torchscript").splitlines()[-1])


NO_TORCHSCRIPT = (
    *("hostile", "hostile-legacy", "hostile-data", "hostile-constants", "hostile-code", "no-code", "zip"),
    *("truncated", "empty", "text", "pickle", "state"),
)


@pytest.mark.parametrize("name", NO_TORCHSCRIPT)
@pytest.mark.fault("Inputs: TorchScript files and pickles", ONE_LINE)
def test_what_is_no_torchscript_file_is_not_run(
    name: str, torchscript_answers: tuple[Path, dict[str, str]], happened: Any
) -> None:
    said = torchscript_answers[1][name]
    assert said.startswith("not a file of torch.jit.save: ")
    assert "\n" not in said
    assert not Path("ran").exists()
    happened(said)


def test_torchscript_files(torchscript_answers: tuple[Path, dict[str, str]]) -> None:
    folder, said = torchscript_answers
    assert said["two"] == "ok"
    spec = ModelSpec.model_validate(yaml.safe_load((folder / "made" / "two" / "model.yaml").read_text()))
    assert [(t.name, t.dtype, t.shape) for t in (*spec.inputs, *spec.outputs)] == [
        ("ids", "int64", (-1, 5)),
        ("scale", "float32", (-1, 1)),
        ("output__0", "float32", (-1, 4)),
        ("output__1", "int64", (-1, 1)),
    ]
    assert "does not say the shape of input 'scale'; give --shape scale=1,..." in said["no-shape"]
    assert "does not run with ids float32" in said["no-type"]
    assert "--samples does" in said["no-type"]
    assert "its forward returns Dict" in said["named"]


SAVEDMODEL = """
import shutil
import tensorflow as tf
class Module(tf.Module):
    def __init__(self):
        self.w = tf.Variable(tf.ones([6, 3]))
    @tf.function
    def serve(self, x):
        return {"y": tf.nn.softmax(x @ self.w)}
module = Module()
call = module.serve.get_concrete_function(tf.TensorSpec([None, 6], tf.float32, name="x"))
tf.saved_model.save(module, f"{folder}/good", signatures={"serving_default": call})
tf.saved_model.save(module, f"{folder}/other", signatures={"other": call})
def spoilt(name, change):
    shutil.copytree(f"{folder}/good", f"{folder}/{name}")
    change(Path(folder) / name)
def cut(path):
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])
spoilt("no-variables", lambda p: shutil.rmtree(p / "variables"))
spoilt("no-index", lambda p: (p / "variables" / "variables.index").unlink())
spoilt("no-values", lambda p: (p / "variables" / "variables.data-00000-of-00001").unlink())
spoilt("cut-values", lambda p: cut(p / "variables" / "variables.data-00000-of-00001"))
spoilt("cut-graph", lambda p: cut(p / "saved_model.pb"))
spoilt("empty-graph", lambda p: (p / "saved_model.pb").write_bytes(b""))
spoilt("pickle-for-graph", lambda p: shutil.copy(f"{folder}/pickle", p / "saved_model.pb"))
names = ("good", "other", "garbage", "no-variables", "no-index", "no-values", "cut-values", "cut-graph")
names += ("empty-graph", "pickle-for-graph")
cases = [{"id": name, "file": name} for name in names]
"""
EXPORT = """
from tasks.child.framework_steps import export, reference
from tasks.child.plugin_steps import prepare, profile_data
plugin, out = Path(folder) / "made" / "good", Path(folder) / "out"
sys.path.insert(0, str(plugin))
tensor = lambda name, last: {"name": name, "dtype": "float32", "shape": [-1, last]}
fields = {
    "framework": "savedmodel", "parameters": {}, "opset": 17, "variant": "file",
    "samples": 64, "batch_size": 8,
    "interface": {"inputs": [tensor("x", 6)], "outputs": [tensor("y", 3)]},
}
def step(function, name, inputs, **more):
    (out / name).mkdir(parents=True)
    function(Job(step="", fields=fields | more, inputs=inputs, plugin=plugin, output=out / name))
    return out / name
prepared = {"prepared": step(prepare, "prepared", {})}
step(export, "tf-savedmodel", prepared, format="tf-savedmodel")
step(export, "onnx", prepared, format="onnx")
samples = {"samples": step(profile_data, "samples", prepared)}
step(reference, "reference", prepared | samples)
"""


@pytest.fixture(scope="module")
def savedmodel_answers(
    tmp_path_factory: pytest.TempPathFactory, run_python: Callable[..., str]
) -> tuple[Path, dict[str, str]]:
    """What one process says of every SavedModel; it exports the good one, too."""
    folder = tmp_path_factory.mktemp("files")
    (folder / "garbage").mkdir()
    (folder / "garbage" / "saved_model.pb").write_bytes(b"\x93\x00garbage")
    (folder / "pickle").write_bytes(PICKLE)
    output = run_python(READ + SAVEDMODEL + REPORT + EXPORT, folder, "savedmodel")
    return folder, json.loads(next(line for line in output.splitlines() if line.startswith("{")))


SPOILT = (
    *("garbage", "no-variables", "no-index", "no-values", "cut-values", "cut-graph", "empty-graph"),
    "pickle-for-graph",
)


@pytest.mark.parametrize("name", SPOILT)
@pytest.mark.fault("Inputs: SavedModels", ONE_LINE)
def test_spoilt_savedmodel(name: str, savedmodel_answers: tuple[Path, dict[str, str]], happened: Any) -> None:
    said = savedmodel_answers[1][name]
    assert said.startswith("not a SavedModel that TensorFlow can load: ")
    assert "\n" not in said
    assert not Path("ran").exists()
    happened(said)


def test_savedmodels(savedmodel_answers: tuple[Path, dict[str, str]]) -> None:
    folder, said = savedmodel_answers
    assert said["good"] == "ok"
    assert "no signature 'serving_default'; it has: other" in said["other"]
    assert (folder / "out" / "tf-savedmodel" / "model.savedmodel" / "saved_model.pb").is_file()
    graph = onnx.load(str(folder / "out" / "onnx" / "model.onnx")).graph
    assert ([v.name for v in graph.input], [v.name for v in graph.output]) == (["x"], ["y"])
    with np.load(folder / "out" / "reference" / "outputs.npz") as file:
        np.testing.assert_allclose(file["y"], np.full((64, 3), 1 / 3), rtol=1e-5)
    counted = json.loads((folder / "out" / "reference" / "count.json").read_text())
    assert (counted["weights"], counted["sample_bytes"]) == (18, 4 * 6 + 4 * 3)
    assert 2 * 18 <= counted["flops"] <= 2 * 18 + 5 * 3  # the product; TensorFlow counts a softmax, too
