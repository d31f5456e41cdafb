"""A lead is called real as rarely as stated for equal cells, and nearly always for cells that differ."""

from __future__ import annotations

import random
from typing import Any

import pytest

from servegrid.reporting.leads import CONFIDENCE, FLOORS, Lead, lead_over

RUNS_VARY = {"throughput": 0.015, "p99_ms": 0.15}
"""Standard deviation of the logarithm from run to run: repeated campaigns on one card were within 4.2 % in
throughput; p99 moves ten times as far."""
WINDOWS_VARY = 0.01
PAIRS = 400


def point(cell: str, column: str, value: float, chance: random.Random, **more: Any) -> dict[str, Any]:
    """A run of a cell whose true figure is `value`, with three windows."""
    run = value * chance.lognormvariate(0, RUNS_VARY[column])
    windows = [run * chance.lognormvariate(0, WINDOWS_VARY) for _ in range(3)]
    return {"cell": cell, column: run, "windows_throughput": windows, "windows_avg_ms": windows, **more}


def called_real(column: str, factor: float) -> int:
    """How many of PAIRS pairs of cells, of which the second is so much slower, have a real lead."""
    chance, most, found = random.Random(1), column == "throughput", 0
    windows = "windows_throughput" if most else "windows_avg_ms"
    for _ in range(PAIRS):
        pair = [point("a", column, 100.0, chance), point("b", column, 100.0 / factor, chance)]
        if not most:
            pair = [point("a", column, 100.0, chance), point("b", column, 100.0 * factor, chance)]
        first, second = sorted(pair, key=lambda row: row[column], reverse=most)
        found += lead_over(column, windows, most=most, first=first, second=second).real
    return found


@pytest.mark.parametrize(("column", "factor", "least", "most"), [
    ("throughput", 1.0, 0.0, 0.05), ("throughput", 1.2, 0.9, 1.0), ("throughput", 1.03, 0.0, 0.5),
    ("p99_ms", 1.0, 0.0, 0.05), ("p99_ms", 2.5, 0.9, 1.0), ("p99_ms", 1.2, 0.0, 0.2),
])  # fmt: skip
def test_share_of_pairs_whose_lead_is_called_real(
    column: str, factor: float, least: float, most: float
) -> None:
    assert least <= called_real(column, factor) / PAIRS <= most


def lead(windows: tuple[list[float], list[float]]) -> Lead:
    first, second = (
        {
            "cell": name,
            "throughput": sum(values) / 3,
            "windows_throughput": values,
            "instances": count,
        }
        for name, values, count in zip("ab", windows, (2, 1), strict=True)
    )
    return lead_over("throughput", "windows_throughput", most=True, first=first, second=second)


def test_real_lead_has_its_interval() -> None:
    found = lead(([150.0, 151.0, 149.0], [100.0, 101.0, 99.0]))
    assert found.real and found.low is not None and found.high is not None
    assert 0.4 < found.low < found.change < found.high < 0.6
    assert "+50.0%" in found.text and f"{found.low:+.1%}" in found.text and f"{CONFIDENCE:.0%}" in found.text


@pytest.mark.parametrize("windows", [
    ([103.0, 104.0, 102.0], [100.0, 101.0, 99.0]), ([150.0, 90.0, 110.0], [100.0, 60.0, 140.0]),
])  # fmt: skip
def test_without_a_difference_the_other_cell_and_the_cheaper_one_are_named(
    windows: tuple[list[float], list[float]],
) -> None:
    found = lead(windows)
    assert not found.real
    assert "no difference found from b" in found.text
    assert "b has fewer instances" in found.text
    assert found.change < FLOORS["throughput"] or (found.low is not None and found.low < 0)


def test_old_rows_without_windows_have_a_lead_without_an_interval() -> None:
    rows = [
        {"cell": name, "throughput": value, "windows_throughput": None}
        for name, value in (("a", 2.0), ("b", 1.0))
    ]
    found = lead_over("throughput", "windows_throughput", most=True, first=rows[0], second=rows[1])
    assert (found.real, found.low, found.text) == (True, None, "2.0x the next cell")
