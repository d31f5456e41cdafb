"""report.md: whole tables with right figures, whatever the strings in them."""

from __future__ import annotations

import re
from collections.abc import Callable

import polars as pl

from servegrid.campaign.results import Row
from servegrid.reporting.markdown import FAILED_SHOWN, document, summary

Rows = Callable[..., pl.DataFrame]
Frames = tuple[pl.DataFrame, pl.DataFrame]


def columns(line: str) -> int:
    """Columns of a Markdown table's line: a pipe after a backslash is text."""
    return len(re.findall(r"(?<!\\)\|", line)) - 1


def tables(text: str) -> list[list[str]]:
    blocks = [block.splitlines() for block in text.split("\n\n")]
    return [block for block in blocks if block[0].startswith("|")]


def test_tables_of_the_markdown_are_whole(cells: Rows, two: Frames, empty: Frames, hostile: str) -> None:
    bad = cells({"cell": "a|b", "verdict": "error", "reason": hostile}), two[1]
    for rows in (empty, two, bad):
        found = tables(document("c", *rows))
        assert found
        for table in found:
            assert {columns(line) for line in table} == {columns(table[0])}
            assert all(line.startswith("| ") and line.endswith(" |") for line in table)


def test_markdown_of_an_empty_campaign_has_a_note(empty: Frames) -> None:
    text = document("c", *empty)
    assert text.startswith("# servegrid campaign c\n\nNo cell has finished yet.\n")
    assert "Nothing: no cell passed" in text


def test_markdown_recommends_no_cell_that_was_only_measured(cells: Rows, points: Rows) -> None:
    rows = cells({"cell": "a", "verdict": "measured", "metric": None, "served_metric": None})
    text = document("c", rows, points({"cell": "a"}))
    assert "Nothing: no cell passed" in text and "no recommendation" in text
    assert "| for | measured only |" in text and "best online throughput" in text


def test_markdown_has_recommendations_cells_and_points(two: Frames) -> None:
    text = document("c", *two)
    assert (
        "| toy: best offline throughput | onnx fp32, 1 instance(s) | batch 8, concurrency 1 | 300.0 |" in text
    )
    assert "+50.0% over the next cell" in text
    assert len(tables(text)[1]) == 2 + 2
    assert "## Offline" in text
    assert "## Online" in text
    assert "torch 2.13" in text


def test_error_in_the_markdown_has_step_and_reason(cells: Rows, empty: Frames) -> None:
    text = document(
        "c",
        cells({"cell": "a", "verdict": "error", "reason": "broke here\ntrace\n  ValueError: x\n"}),
        empty[1],
    )
    row = next(line for line in text.splitlines() if line.startswith("| a |"))
    assert row.endswith("| broke here: ValueError: x |")
    assert "trace" not in text


def test_unmeasured_number_is_empty_and_never_zero(two: Frames) -> None:
    text = document("c", *two)
    row = next(line for line in text.splitlines() if line.startswith("| a | 8 | 1 |"))
    assert row.split(" | ")[-2:] == ["", "yes |"]  # the framework's latency, stable


def test_unmeasured_energy_is_empty(points: Rows, two: Frames) -> None:
    assert "J per 1000" not in document("c", *two)
    rows = points({"cell": "a", "throughput": 600.0, "power_w": 300.0}, {"cell": "b"})
    text = document("c", two[0], rows)
    assert [
        line.split(" | ")[-2] for line in text.splitlines() if line.startswith(("| a | 1 |", "| b | 1 |"))
    ] == [
        "500.00",
        "",
    ]


def test_error_names_the_command_that_repeats_it(cells: Rows, two: Frames) -> None:
    text = document("c", cells({"cell": "a", "verdict": "error", "command": "python -m it"}), two[1])
    assert "| a |  | python -m it |" in text
    assert "`servegrid bundle CELL FOLDER --campaign c`" in text


def test_summary_is_small_whatever_the_campaign(cells: Rows, two: Frames) -> None:
    bad: list[Row] = [{"cell": f"bad-{n}", "verdict": "error"} for n in range(1000)]
    text = summary("c", cells({"cell": "a"}, *bad), two[1])
    assert text.startswith("# servegrid campaign c\n") and "| toy: best offline throughput |" in text
    assert "1000 error, 1 passed" in text
    assert text.count("| bad-") == FAILED_SHOWN and "## Offline" not in text
