"""Campaigns over time: which points and verdicts of a cell moved, and what changed with them."""

from __future__ import annotations

import json
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import polars as pl

from tasks.core import columns, results
from tasks.core.values import Value
from tasks.loadgen.base import STABLE_WINDOWS, spread

LEAST_NOISE = 0.05
"""What a throughput moves by at least between two runs of the same, whatever the windows of each say."""
SAME = ("cell", "profile", "random_weights")
POINT = (*SAME, *columns.POINT, "shared_memory", "protocol", "max_batch_size", "generator")
"""What two measurements must share to be compared."""
PLAIN = ("gpu", "cpu", "host", "triton_release", "server", "server_version", "backend")
SET = ("generator_version", "instances", "preferred_batch_sizes", "max_queue_delay_us", "cuda_graph")


class Move(Value):
    """One change from a campaign to the next that has the same; `noise` is what a change must exceed."""

    cell: str
    profile: str
    what: str
    before: str
    after: str
    change: float | None
    noise: float | None
    campaigns: tuple[str, str]
    changed_with_it: tuple[str, ...]


def moves(folder: Path, cell: str | None = None) -> list[Move]:
    """Every move between campaigns below a folder, of one cell or of all, the latest last."""
    read = [results.read(path.parent) for path in sorted(folder.glob("*/rows.jsonl"))]
    if not read:
        return []
    cells, points = (pl.concat(frames) for frames in zip(*read, strict=True))
    if cell is not None:
        cells, points = (frame.filter(pl.col("cell") == cell) for frame in (cells, points))
    found = [*_verdicts(cells), *_throughputs(points)]
    return sorted(found, key=lambda move: (move.campaigns[1], move.cell))


def _verdicts(cells: pl.DataFrame) -> Iterator[Move]:
    for before, after in _neighbours(cells.filter(pl.col("verdict") != "skipped"), SAME):
        if before["verdict"] != after["verdict"]:
            yield _move("verdict", before, after, before["verdict"], after["verdict"])


def _throughputs(points: pl.DataFrame) -> Iterator[Move]:
    for before, after in _neighbours(points.filter(pl.col("stable")), POINT):
        change = after["throughput"] / before["throughput"] - 1
        noise = max(LEAST_NOISE, _spread(before), _spread(after))
        if abs(change) > noise:
            what = f"{columns.point_in_words(after)}, inferences/s"
            was, now = (f"{row['throughput']:.1f}" for row in (before, after))
            yield _move(what, before, after, was, now, change=change, noise=noise)


def _neighbours(
    frame: pl.DataFrame, same: tuple[str, ...]
) -> Iterator[tuple[dict[str, Any], dict[str, Any]]]:
    """Rows that share those columns, each with the one of the campaign before."""
    for _, rows in frame.sort("campaign").group_by(same, maintain_order=True):
        yield from pairwise(rows.iter_rows(named=True))


def _move(
    what: str,
    before: dict[str, Any],
    after: dict[str, Any],
    was: str,
    now: str,
    change: float | None = None,
    noise: float | None = None,
) -> Move:
    return Move(
        cell=after["cell"],
        profile=after["profile"],
        what=what,
        before=was,
        after=now,
        change=change,
        noise=noise,
        campaigns=(before["campaign"], after["campaign"]),
        changed_with_it=tuple(_differences(before, after)),
    )


def _differences(before: dict[str, Any], after: dict[str, Any]) -> Iterator[str]:
    """Machine, driver, server, settings and libraries that are not what they were."""
    was, now = _facts(before), _facts(after)
    for name in dict.fromkeys((*was, *now)):
        if was.get(name) != now.get(name):
            yield f"{name} {was.get(name, 'absent')} -> {now.get(name, 'absent')}"


def _facts(row: dict[str, Any]) -> dict[str, Any]:
    environment = json.loads(row["environment"] or "{}")
    return {
        **{name: row[name] for name in (*PLAIN, *SET) if name in row},
        **{name: environment.get(name) for name in ("driver", "system", "python")},
        **json.loads(row["versions"] or "{}"),
    }


def _spread(row: dict[str, Any]) -> float:
    windows = (row["windows_throughput"] or [])[-STABLE_WINDOWS:]
    return spread(windows) if windows else 0.0
