"""What a converted model is checked against: its export's example."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tasks.child import artifacts
from tasks.core.build import Job

X = {"x": np.array([[1.0, 2.0], [3.0, 4.0]], np.float32), "ids": np.array([[1], [2]])}
Y = {"y": np.array([[10.0, 0.5, 0.0], [20.0, 0.25, 0.0]], np.float32)}


@pytest.fixture
def job(tmp_path: Path, interface: Any) -> Any:
    """`job(precision, tolerance)` of a conversion whose export and output folders are there."""
    exported, output = tmp_path / "exported", tmp_path / "output"
    exported.mkdir()
    output.mkdir()
    io = interface([("x", "float32", (-1, 2)), ("ids", "int64", (-1, 1))], [("y", "float32", (-1, -1))])
    artifacts.write_interface(exported, io)
    artifacts.write_example(exported, X, Y)

    def make(precision: str = "fp32", **tolerance: float) -> Job:
        fields = {"precision": precision, "tolerance": tolerance or None}
        return Job(
            step="convert_x", fields=fields, inputs={"exported": exported}, plugin=tmp_path, output=output
        )

    return make


def test_half_precision_has_half_inputs_and_outputs_and_whole_integers(job: Any) -> None:
    seen = {}

    def run(x: Any) -> Any:
        seen.update(x)
        return {"y": Y["y"].astype(np.float16)}

    one = job("fp16")
    artifacts.finish(one, run)
    assert {name: array.dtype for name, array in seen.items()} == {"x": np.float16, "ids": np.int64}
    found = artifacts.read_interface(one.output)
    assert [t.dtype for t in (*found.inputs, *found.outputs)] == ["float16", "int64", "float16"]


def test_full_precision_keeps_the_interface(job: Any) -> None:
    one = job()
    artifacts.finish(one, lambda x: Y)
    assert artifacts.read_interface(one.output) == artifacts.read_interface(one.inputs["exported"])


def test_what_is_beyond_the_tolerance_is_refused_with_how_far(job: Any) -> None:
    wrong = {"y": Y["y"] + np.array([[0.0, 0.3, 0.0], [0.0, 0.0, 0.0]], np.float32)}
    artifacts.finish(job(absolute=0.31, relative=0.0), lambda x: wrong)
    artifacts.finish(job(absolute=0.06, relative=0.5), lambda x: wrong)  # 0.06 + 0.5 x 0.5 = 0.31
    with pytest.raises(ValueError, match=r"output 'y' of the converted model: 0\.1 beyond"):
        artifacts.finish(job(absolute=0.2, relative=0.0), lambda x: wrong)
    artifacts.finish(job(), lambda x: wrong)  # no tolerance in the spec: told, and left to correctness


@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_what_is_no_number_is_refused_even_without_a_tolerance(job: Any, bad: float) -> None:
    with pytest.raises(ValueError, match="NaN or infinite"):
        artifacts.finish(job(), lambda x: {"y": np.full((2, 3), bad, np.float32)})


def test_outputs_of_another_length_are_padded_with_zeros(job: Any) -> None:
    artifacts.finish(job(absolute=1e-6, relative=0.0), lambda x: {"y": Y["y"][:, :2]})
    with pytest.raises(ValueError, match=r"19\.7 beyond"):
        artifacts.finish(job(absolute=1e-6, relative=0.0), lambda x: {"y": Y["y"][:, 1:]})
