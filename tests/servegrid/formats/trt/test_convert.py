"""The errors of TensorRT's ONNX parser are shown whole; a graph with another interface is not built."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from servegrid.domain.values import Interface
from servegrid.formats.trt.format import TRT, library
from servegrid.host.environment import missing

pytestmark = pytest.mark.skipif(
    bool(missing(TRT.libraries)), reason=f"not installed: {missing(TRT.libraries)}"
)

TRY = """
import sys
from pathlib import Path
from servegrid.formats.artifacts import read_interface
from servegrid.formats.trt.convert import check_interface, parse
from servegrid.formats.trt.session import LOG, trt
builder = trt.Builder(LOG)
for folder in map(Path, sys.argv[1:]):
    network = builder.create_network(1 << int(trt.NetworkDefinitionCreationFlag.STRONGLY_TYPED))
    try:
        parse(network, folder / "model.onnx")
        check_interface(network, read_interface(folder))
        print("=> fine")
    except Exception as error:
        print(f"=> {type(error).__name__}: {error}")
"""

SQUARE = [("x", "float32", (-1, 3, 3))]


@pytest.fixture(scope="module")
def answers(interface: Any, onnx_artifact: Callable[..., Path]) -> dict[str, str]:
    """The output for each graph: the parser's errors, then the result of the step."""

    def artifact(nodes: list[Any], weights: Any = None, shown: Interface | None = None) -> Path:
        io = interface(SQUARE, [("y", "float32", (-1, 3, 3))])
        folder = onnx_artifact(io, nodes, weights)
        (folder / "interface.json").write_text((shown or io).model_dump_json())
        return folder

    relu = [("Relu", ["x"], ["y"], {})]
    folders = {
        "fine": artifact(relu),
        "operators": artifact(
            [("Det", ["x"], ["a"], {"name": "det"}), ("Unique", ["a"], ["y"], {"name": "once"})]
        ),
        "unknown": artifact([("Frobnicate", ["x"], ["y"], {"name": "frob"})]),
        "broken": artifact(
            [("Add", ["x", "w"], ["y"], {"name": "add"})], {"w": np.zeros((3, 4), np.float32)}
        ),
        "no graph": artifact(relu),
        "dtype": artifact(
            relu, shown=interface([("x", "float16", (-1, 3, 3))], [("y", "float32", (-1, 3, 3))])
        ),
        "shape": artifact(relu, shown=interface(SQUARE, [("y", "float32", (-1, 3, 4))])),
        "name": artifact(relu, shown=interface(SQUARE, [("z", "float32", (-1, 3, 3))])),
    }
    (folders["no graph"] / "model.onnx").write_bytes(b"not an ONNX file")
    done = subprocess.run(
        [sys.executable, "-c", TRY, *map(str, folders.values())],
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=120, check=True,
    )  # fmt: skip
    parts, text = [], ""
    for line in done.stdout.splitlines():
        text += line + "\n"
        if line.startswith("=> "):
            parts.append(text)
            text = ""
    return dict(zip(folders, parts, strict=True))


def last(text: str) -> str:
    return text.splitlines()[-1]


def test_graph_that_is_its_interface_is_taken(answers: dict[str, str]) -> None:
    assert last(answers["fine"]) == "=> fine"


def test_unsupported_operators_are_all_named_and_the_first_is_the_reason(answers: dict[str, str]) -> None:
    text = answers["operators"]
    assert "In node 0 with name: det and operator: Det (checkDet): UNSUPPORTED_NODE" in text
    assert "In node 1 with name: once and operator: Unique (checkUnique): UNSUPPORTED_NODE" in text
    assert last(text).startswith(f"=> UnsupportedError: {library()}'s ONNX parser: In node 0 with name: det")
    assert last(text).endswith("(and 1 more above)")


def test_operator_that_nobody_knows_is_unsupported(answers: dict[str, str]) -> None:
    assert last(answers["unknown"]).startswith("=> UnsupportedError: ")
    assert "operator: Frobnicate" in last(answers["unknown"])


def test_broken_graph_is_an_error_on_one_line_with_the_parsers_text_above(answers: dict[str, str]) -> None:
    text = answers["broken"]
    assert last(text).startswith(f"=> ValueError: {library()}'s ONNX parser: In node 0 with name: add")
    assert "broadcast dimensions must be conformable" in last(text)
    assert "INVALID_NODE: Invalid Node - add\n" in text


def test_file_that_is_no_graph_is_an_error(answers: dict[str, str]) -> None:
    assert last(answers["no graph"]).startswith("=> ValueError: ")
    assert "MODEL_DESERIALIZE_FAILED" in last(answers["no graph"])


@pytest.mark.parametrize(
    ("graph", "message"),
    [
        ("dtype", "input 'x' of the graph is float32 [-1, 3, 3], not float16 [-1, 3, 3]"),
        ("shape", "output 'y' of the graph is float32 [-1, 3, 3], not float32 [-1, 3, 4]"),
        ("name", "the graph has outputs ['y'], not ['z']"),
    ],
)
def test_graph_that_is_not_its_interface_is_refused(
    answers: dict[str, str], graph: str, message: str
) -> None:
    assert last(answers[graph]) == f"=> ValueError: {message}"
