"""The command that repeats a failed cell on this host, with every option of the campaign."""

from __future__ import annotations

import shlex
from dataclasses import replace
from typing import Any

import pytest

from servegrid.campaign.cell_writer import CellWriter
from servegrid.domain.errors import StepError
from servegrid.domain.values import Cell
from servegrid.loadgen.measured import PartlyMeasuredError
from servegrid.plan.options import SweepOptions, _flag
from servegrid.plan.selection import Selection

BOUNDS: dict[str, Any] = {
    **{"max_batch_size": 3, "max_concurrency": 2, "request_count": 70, "window_s": 0.5, "fixed_points": True},
    **{"request_rates": (50.0, 0.5), "distribution": "constant", "slo": "p99=50ms"},
    **{"random_weights": True, "protocol": "http", "shared_memory": "none", "input_data": "zero"},
}


def repeated(writer: CellWriter, cell: Cell) -> list[str]:
    """The words of the command of a cell that ends in an error."""
    with writer.running(cell) as result:
        raise RuntimeError("broken")
    assert result.outcome is not None and result.outcome.command is not None
    return shlex.split(result.outcome.command)


@pytest.mark.parametrize("name", Selection.model_fields)
def test_command_that_repeats_a_cell_has_every_given_bound(writer: CellWriter, cell: Cell, name: str) -> None:
    p = cell.product
    own = {"formats": (p.format,), "precisions": (p.precision,), "accelerators": (p.accelerator,)}
    own |= {"instances": (cell.dynamic.instances,)}
    needs = {"distribution": {"request_rates": (50.0,)}}
    options = SweepOptions.model_validate(
        needs.get(name, {}) | {name: (BOUNDS | own)[name]} | {"profiles": ("cpu", "other"), "workers": True}
    )
    words = repeated(replace(writer, options=options), cell)
    value = getattr(options, name)
    at = words.index(_flag(name))
    assert value is True or words[at + 1] == str(value[0] if isinstance(value, tuple) else value)
    assert (words.count("--profile"), words[words.index("--profile") + 1]) == (1, "cpu")
    assert words[words.index("--generator") + 1] == "client"
    assert "--workers" not in words  # it is repeated on the host of its log


def test_only_the_cell_with_the_same_instances_is_repeated(writer: CellWriter, cell: Cell) -> None:
    two = cell.model_copy(update={"dynamic": cell.dynamic.model_copy(update={"instances": 2})})
    counts = [words[words.index("--instances") + 1] for words in (repeated(writer, c) for c in (cell, two))]
    assert counts == ["1", "2"]


def test_the_command_that_repeats_a_cell_names_a_model_file_and_the_server(
    writer: CellWriter, cell: Cell
) -> None:
    given = {"onnx": "/a net.onnx", "shapes": ("x=1,2",), "server": "remote", "url": "grpcs://h:1"}
    given |= {"ca_file": "/ca.pem", "headers_file": "/headers"}
    words = repeated(replace(writer, options=SweepOptions.model_validate(given)), cell)
    flags = dict(zip(words[2::2], words[3::2], strict=True))
    assert (flags["--onnx"], flags["--shape"], flags["--server"]) == ("/a net.onnx", "x=1,2", "remote")
    assert (flags["--url"], flags["--ca-file"]) == ("grpcs://h:1", "/ca.pem")
    assert (flags["--headers-file"], "--model" in flags) == ("/headers", False)


def test_failed_generator_is_repeated_with_its_whole_cell(writer: CellWriter, cell: Cell) -> None:
    cause = StepError(
        "the generator broke", log="/a.log", command="python -m servegrid.loadgen.client.process"
    )
    with writer.running(cell) as result:
        raise PartlyMeasuredError(cause)
    assert result.outcome is not None and result.outcome.log == "/a.log"
    assert (result.outcome.command or "").startswith("servegrid sweep --model bert_large_qa")
