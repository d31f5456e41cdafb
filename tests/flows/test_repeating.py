"""The command that repeats a cell which ended as an error, with all options of its sweep."""

from __future__ import annotations

import shlex
from dataclasses import replace
from typing import Any

import pytest

from flows.record import Recorder
from servegrid.domain.errors import StepError
from servegrid.domain.values import Cell
from servegrid.loadgen.measured import PartlyMeasuredError
from servegrid.plan.options import SweepOptions
from servegrid.plan.selection import Selection

BOUNDS: dict[str, Any] = {
    **{"max_batch_size": 3, "max_concurrency": 2, "request_count": 70, "window_s": 0.5, "fixed_points": True},
    **{"request_rates": (50.0, 0.5), "distribution": "constant", "slo": "p99=50ms"},
    **{"protocol": "http", "shared_memory": "none"},
}


def repeated(recorder: Recorder, cell: Cell) -> list[str]:
    """The words of the command of a cell that ends in an error."""
    with recorder.cell(cell) as record:
        raise RuntimeError("broken")
    assert record.outcome is not None and record.outcome.command is not None
    return shlex.split(record.outcome.command)


@pytest.mark.parametrize("name", Selection.model_fields)
def test_the_command_that_repeats_a_cell_has_every_bound_that_was_given(
    recorder: Recorder, cell: Cell, name: str
) -> None:
    p = cell.product
    own = {"formats": (p.format,), "precisions": (p.precision,), "accelerators": (p.accelerator,)}
    own |= {"instances": cell.dynamic.instances}
    needs = {"distribution": {"request_rates": (50.0,)}}
    options = SweepOptions.model_validate(
        needs.get(name, {}) | {name: (BOUNDS | own)[name]} | {"profiles": ("cpu", "other"), "workers": True}
    )
    words = repeated(replace(recorder, options=options), cell)
    value = getattr(options, name)
    flag = "--" + (name.removesuffix("s") if isinstance(value, tuple) else name).replace("_", "-")
    at = words.index(flag)
    assert value is True or words[at + 1] == str(value[0] if isinstance(value, tuple) else value)
    assert (words.count("--profile"), words[words.index("--profile") + 1]) == (1, "cpu")
    assert words[words.index("--generator") + 1] == "client"
    assert "--workers" not in words  # it is repeated on the host of its log


def test_of_a_model_that_is_served_by_one_and_by_two_instances_the_one_cell_is_repeated(
    recorder: Recorder, cell: Cell
) -> None:
    two = cell.model_copy(update={"dynamic": cell.dynamic.model_copy(update={"instances": 2})})
    counts = [words[words.index("--instances") + 1] for words in (repeated(recorder, c) for c in (cell, two))]
    assert counts == ["1", "2"]


def test_the_command_that_repeats_a_cell_names_a_model_file_and_the_server(
    recorder: Recorder, cell: Cell
) -> None:
    given = {"onnx": "/a net.onnx", "shapes": ("x=1,2",), "server": "remote", "url": "grpcs://h:1"}
    given |= {"ca_file": "/ca.pem", "headers_file": "/headers"}
    words = repeated(replace(recorder, options=SweepOptions.model_validate(given)), cell)
    flags = dict(zip(words[2::2], words[3::2], strict=True))
    assert (flags["--onnx"], flags["--shape"], flags["--server"]) == ("/a net.onnx", "x=1,2", "remote")
    assert (flags["--url"], flags["--ca-file"]) == ("grpcs://h:1", "/ca.pem")
    assert (flags["--headers-file"], "--model" in flags) == ("/headers", False)


def test_generator_that_failed_is_repeated_by_the_cell_for_its_server_is_gone(
    recorder: Recorder, cell: Cell
) -> None:
    cause = StepError(
        "the generator broke", log="/a.log", command="python -m servegrid.loadgen.client.process"
    )
    with recorder.cell(cell) as record:
        raise PartlyMeasuredError(cause, ())
    assert record.outcome is not None and record.outcome.log == "/a.log"
    assert (record.outcome.command or "").startswith("servegrid sweep --model bert_large_qa")
