"""A converted model is checked against its export's example."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from servegrid.domain.arrays import Arrays
from servegrid.domain.tolerances import Tolerances
from servegrid.frameworks import artifacts
from servegrid.store.build import Job

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

    def make(precision: str = "fp32", **bounds: float) -> Job:
        tolerances = Tolerances(**{"absolute": 100, "cosine": 0.01} | bounds)  # type: ignore[arg-type]  # floats
        fields = {"precision": precision, "tolerances": tolerances.model_dump()}
        return Job(
            step="convert_x", fields=fields, inputs={"source": exported}, plugin=tmp_path, output=output
        )

    return make


def answering(outputs: Arrays, seen: Arrays | None = None) -> Any:
    """Opens a session that has read its artifact's interface and gives these outputs."""

    class Session:
        def __init__(self, artifact: Path, kind: str) -> None:
            artifacts.read_interface(artifact)
            assert kind == "CPU"

        def run(self, inputs: Arrays) -> Arrays:
            if seen is not None:
                seen.update(inputs)
            return outputs

    return Session


def test_half_precision_has_half_inputs_and_outputs_and_whole_integers(job: Any) -> None:
    seen: Arrays = {}
    one = job("fp16")
    artifacts.finish(one, answering({"y": Y["y"].astype(np.float16)}, seen))
    assert {name: array.dtype for name, array in seen.items()} == {"x": np.float16, "ids": np.int64}
    found = artifacts.read_interface(one.output)
    assert [t.dtype for t in (*found.inputs, *found.outputs)] == ["float16", "int64", "float16"]


def test_full_precision_keeps_the_interface(job: Any) -> None:
    one = job()
    artifacts.finish(one, answering(Y))
    assert artifacts.read_interface(one.output) == artifacts.read_interface(one.inputs["source"])


def test_a_difference_beyond_the_tolerance_is_refused_with_its_size(job: Any) -> None:
    wrong = answering({"y": Y["y"] + np.array([[0.0, 0.3, 0.0], [0.0, 0.0, 0.0]], np.float32)})
    artifacts.finish(job(absolute=0.31), wrong)
    artifacts.finish(job(absolute=0.06, relative=0.5), wrong)  # 0.06 + 0.5 x 0.5 = 0.31
    with pytest.raises(ValueError, match=r"\by\b.*\b0\.3\b.*\b0\.2\b"):
        artifacts.finish(job(absolute=0.2), wrong)
    with pytest.raises(ValueError, match=r"\by\b.*cosine.*0\.9995\d+.*0\.9999"):
        artifacts.finish(job(cosine=0.9999), wrong)


def test_margins_are_kept(job: Any) -> None:
    one = job()
    artifacts.finish(one, answering({"y": Y["y"] + np.float32(0.25)}))
    (margin,) = json.loads((one.output / "margins.json").read_text())
    assert (margin["output"], margin["largest_difference"], margin["excess"]) == ("y", 0.25, 0)


@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_nan_and_infinity_are_refused(job: Any, bad: float) -> None:
    with pytest.raises(ValueError, match=r"\by\b.*\binf\b"):
        artifacts.finish(job(absolute=1e30), answering({"y": np.full((2, 3), bad, np.float32)}))


def test_outputs_of_another_length_are_padded_with_zeros(job: Any) -> None:
    artifacts.finish(job(absolute=1e-6), answering({"y": Y["y"][:, :2]}))
    with pytest.raises(ValueError, match=r"\by\b.*19\.8"):
        artifacts.finish(job(absolute=1e-6), answering({"y": Y["y"][:, 1:]}))
