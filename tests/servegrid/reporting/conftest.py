"""Rows of made-up campaigns, for every form of the report."""

from __future__ import annotations

from collections.abc import Callable

import polars as pl
import pytest

from servegrid.campaign.results import CELLS, MEASURED, MEASUREMENTS, Row

HOST = '{"cores": 2, "memory_gb": 23.5, "system": "Linux 6", "python": "3.11"}'
HOSTILE = 'a|b \\| `c` <script>alert("1")</script> & <img src="http://x/y">\nsecond line | with a pipe\n'


def _cells(*rows: Row) -> pl.DataFrame:
    common = {
        "campaign": "c",
        "profile": "cpu",
        "gpu": "Card <9000>",
        "model": "toy",
        "environment": HOST,
        "versions": '{"torch": "2.13"}',
        "metric": "f1",
        "served_metric": 0.875,
        "verdict": "passed",
    }
    return pl.DataFrame([common | row for row in rows], schema=CELLS)


def _points(*rows: Row) -> pl.DataFrame:
    common: Row = {
        "profile": "cpu",
        "model": "toy",
        "format": "onnx",
        "precision": "fp32",
        "parameters": "{}",
        "instances": 1,
        "batch": 1,
        "concurrency": 1,
        "scenario": "online",
        "stable": True,
        **dict.fromkeys(MEASURED, 1.0),
    }
    return pl.DataFrame([common | row for row in rows], schema=MEASUREMENTS)


TWO = (
    _cells({"cell": "a"}, {"cell": "b", "served_metric": 0.9}),
    _points(
        {"cell": "a", "scenario": "offline", "batch": 1, "throughput": 100.0},
        {"cell": "a", "scenario": "offline", "batch": 8, "throughput": 300.0, "p99_ms": 30.0},
        {"cell": "b", "scenario": "offline", "batch": 8, "throughput": 200.0, "format": "ts-trace"},
        {"cell": "a", "concurrency": 4, "throughput": 90.0, "p99_ms": 5.0},
        {"cell": "a", "concurrency": 1, "throughput": 50.0, "p99_ms": 4.0},
        {"cell": "b", "concurrency": 4, "throughput": 99.0, "p99_ms": 6.0},
    ),
)


@pytest.fixture
def cells() -> Callable[..., pl.DataFrame]:
    """`cells(*rows)`: cells that passed, but for what each row says."""
    return _cells


@pytest.fixture
def points() -> Callable[..., pl.DataFrame]:
    """`points(*rows)`: stable points online at batch 1 and concurrency 1, but for what each row says."""
    return _points


@pytest.fixture(scope="session")
def two() -> tuple[pl.DataFrame, pl.DataFrame]:
    """Cells and points of a campaign of two cells."""
    return TWO


@pytest.fixture(scope="session")
def empty() -> tuple[pl.DataFrame, pl.DataFrame]:
    """Cells and points of a campaign in which nothing has finished."""
    return pl.DataFrame(schema=CELLS), pl.DataFrame(schema=MEASUREMENTS)


@pytest.fixture(scope="session")
def hostile() -> str:
    """A reason that is markup, in Markdown and in HTML."""
    return HOSTILE
