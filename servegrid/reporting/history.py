"""Campaigns over time: changes of a cell's figures and verdict, and the settings that changed with them."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

import polars as pl

from servegrid.campaign import columns, results
from servegrid.campaign.layout import ROWS
from servegrid.domain.errors import unknown
from servegrid.domain.values import Serving, Value
from servegrid.loadgen.base import STABLE_WINDOWS, spread


class Figure(NamedTuple):
    """A figure of a point: its noise floor between two runs of the same point, and the windows whose spread
    may raise it."""

    column: str
    title: str
    windows: str
    least_noise: float


TRACKED_COLUMNS = (
    Figure("throughput", "inferences/s", "windows_throughput", 0.05),
    Figure("avg_ms", "avg ms", "windows_avg_ms", 0.05),
    Figure("p99_ms", "p99 ms", "windows_avg_ms", 0.50),
)
"""The floor of p99 is high because no windows show its spread: of 154 pairs of points in successive campaigns
on a shared host of two cores nine in ten were within 53 % (throughput: 41 %), and perf_analyzer's p99 of one
setting went from 4.6 to 8.9 ms."""
METRIC_STEP = 0.001
"""Smallest relative change of a served metric that counts: one sample in a thousand. The metric was constant
in 41 pairs of successive campaigns of the same cell on one host."""
SAME = ("cell", "profile", "random_weights")
SAME_POINT = (*SAME, *columns.POINT_KEY, "shared_memory", "protocol", "max_batch_size")
"""Columns that two measurements must share to be compared."""
PLAIN = ("gpu", "cpu", "host", "triton_release", "server", "server_version", "backend")
SET = (
    "generator",
    "generator_version",
    *(name for name in Serving.model_fields if name not in (*SAME_POINT, *PLAIN)),
    *columns.REMOVED,
)
"""Columns whose change is reported with a change of a figure: machine and settings."""
DIGESTS = {"artifact_digest": "the served file", "samples_digest": "the samples"}
"""Columns of digests, and what each is of."""
SHOWN_DIGITS = 12
LAST = 12
"""Campaigns that a report includes."""

Frames = tuple[pl.DataFrame, pl.DataFrame]
"""The cells and the measurements of a campaign, or of several in the order of time."""


class Move(Value):
    """A change between two successive campaigns of a cell or point; `change` exceeds `noise`."""

    cell: str
    profile: str
    what: str
    before: str
    after: str
    change: float | None
    noise: float | None
    campaigns: tuple[str, str]
    changed_with_it: tuple[str, ...]

    @property
    def by(self) -> str:
        """The change and the noise as text; empty for a verdict."""
        return "" if self.change is None else f"{self.change:+.1%} (noise {self.noise:.1%})"

    @property
    def with_it(self) -> str:
        """The settings that changed, as text."""
        return "; ".join(self.changed_with_it) or "nothing that is recorded"


class Past(NamedTuple):
    """Changes up to a campaign, the latest first, and its best points in earlier campaigns."""

    moves: list[Move]
    trail: pl.DataFrame


def moves(folder: Path, cell: str | None = None) -> list[Move]:
    """Every change between campaigns below a folder, of one cell or of all, the latest last.

    Raises:
        UserError: no campaign has that cell.
    """
    cells, points = _in_time(results.read(path.parent) for path in folder.glob(f"*/{ROWS}"))
    if cell is not None:
        if cell not in cells["cell"]:
            raise unknown("cell", cell, cells["cell"].drop_nulls())
        cells, points = (frame.filter(pl.col("cell") == cell) for frame in (cells, points))
    return _moves(cells, points)


def past(folder: Path, this: Frames) -> Past:
    """The last campaigns of the same folder, up to this one, that have rows of its cells."""
    names = {json.dumps(name) for name in this[0]["cell"]}
    found = [this]
    others = [path for path in folder.parent.glob(f"*/{ROWS}") if path.parent != folder]
    for path in sorted(others, key=lambda path: path.stat().st_mtime, reverse=True):
        if len(found) == LAST:
            break
        text = path.read_text(encoding="utf-8", errors="replace")
        if any(name in text for name in names):  # most campaigns are of other cells, and parsing takes long
            earlier = results.read(path.parent)
            found += [earlier] if _began(earlier) < _began(this) else []
    cells, points = (
        frame.join(this[0].select(SAME), on=SAME, how="semi", nulls_equal=True) for frame in _in_time(found)
    )
    moved, place = _moves(cells, points), _places(cells)
    latest_first = sorted(moved, key=lambda move: place[move.campaigns[1]], reverse=True)
    return Past(latest_first, _trail(points, this[0]["campaign"].unique()))


def _in_time(frames: Iterable[Frames]) -> Frames:
    """Campaigns one after the other."""
    ordered = sorted(frames, key=_began)
    empty = pl.DataFrame(schema=results.CELLS), pl.DataFrame(schema=results.MEASUREMENTS)
    cells, points = (pl.concat(column) for column in zip(empty, *ordered, strict=True))
    return cells, points


def _began(frames: Frames) -> tuple[str, str]:
    """When a campaign began; the names of older campaigns, which recorded no time, sort by time."""
    cells, _ = frames
    name = str(cells["campaign"].drop_nulls().min() or "")
    return str(cells["started_at"].drop_nulls().min() or ""), name


def _moves(cells: pl.DataFrame, points: pl.DataFrame) -> list[Move]:
    place = _places(cells)
    moved = (*_verdicts(cells), *_metrics(cells), *_figures(points))
    found = [move for move in moved if move.campaigns[1] in place]
    return sorted(found, key=lambda move: (place[move.campaigns[1]], move.cell))


def _places(cells: pl.DataFrame) -> dict[str, int]:
    """Campaigns in the order of time -> their number."""
    return {name: number for number, name in enumerate(cells["campaign"].unique(maintain_order=True))}


def _trail(points: pl.DataFrame, campaign: pl.Series) -> pl.DataFrame:
    """The best stable point of each cell and scenario of a campaign, in every campaign that measured it:
    `when` that began, and the `change` of throughput since the first. Points of one campaign are left out."""
    stable = points.filter(pl.col("stable"))
    same = (*SAME_POINT, "generator")  # one line of a chart has one load generator
    best = (
        stable.filter(pl.col("campaign").is_in(campaign.implode()))
        .sort("throughput", descending=True)
        .unique((*SAME, "scenario"), keep="first", maintain_order=True)
    )
    found = stable.join(best.select(*same), on=same, how="semi", nulls_equal=True)
    first = pl.col("throughput").first().over(same)
    several = pl.col("campaign").n_unique().over(same) > 1
    began = pl.col("started_at").min().over("campaign").str.slice(0, 16).str.replace("T", " ")
    return found.with_columns(
        when=began.fill_null(pl.col("campaign")), change=pl.col("throughput") / first - 1
    ).filter(several)


def _verdicts(cells: pl.DataFrame) -> Iterator[Move]:
    for before, after in _neighbours(cells.filter(pl.col("verdict") != "skipped"), SAME):
        if before["verdict"] != after["verdict"]:
            yield _move("verdict", before, after, before["verdict"], after["verdict"])


def _metrics(cells: pl.DataFrame) -> Iterator[Move]:
    """Changes of the served metric, for any verdict; skipped when the old value is 0."""
    known = cells.filter(pl.col("served_metric").is_not_null())
    for before, after in _neighbours(known, (*SAME, "metric")):
        was, now = before["served_metric"], after["served_metric"]
        change = (now - was) / abs(was) if was else 0.0
        if abs(change) > METRIC_STEP:
            what = f"{after['metric']}, served"
            yield _move(what, before, after, f"{was:.4f}", f"{now:.4f}", change=change, noise=METRIC_STEP)


def _figures(points: pl.DataFrame) -> Iterator[Move]:
    for column, title, windows, least in TRACKED_COLUMNS:
        known = points.filter(pl.col("stable") & (pl.col(column) > 0))
        for before, after in _neighbours(known, SAME_POINT):
            change = after[column] / before[column] - 1
            noise = max(least, _spread(before[windows]), _spread(after[windows]))
            if abs(change) > noise:
                what = f"{columns.point_in_words(after)}, {title}"
                was, now = (
                    f"{row[column]:.{1 if column == 'throughput' else 2}f}" for row in (before, after)
                )
                yield _move(what, before, after, was, now, change=change, noise=noise)


def _neighbours(
    frame: pl.DataFrame, same: tuple[str, ...]
) -> Iterator[tuple[dict[str, Any], dict[str, Any]]]:
    """Pairs of successive rows that share those columns."""
    several = frame.filter(pl.col("campaign").n_unique().over(same) > 1)
    for _, rows in several.group_by(same, maintain_order=True):
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
    """Machine, driver, server, settings and libraries that changed."""
    was, now = _facts(before), _facts(after)
    for column, what in DIGESTS.items():
        old, new = before[column], after[column]
        if old and new and old != new:  # rows of older versions have none
            yield f"{what} {old[:SHOWN_DIGITS]} -> {new[:SHOWN_DIGITS]}"
    for name in dict.fromkeys((*was, *now)):
        if was.get(name) != now.get(name):
            yield f"{name} {was.get(name, 'absent')} -> {now.get(name, 'absent')}"


def _facts(row: dict[str, Any]) -> dict[str, Any]:
    environment = columns.parse_json(row["environment"])
    return {
        **{name: row[name] for name in (*PLAIN, *SET) if name in row},
        **{name: environment.get(name) for name in ("driver", "system", "python")},
        **columns.parse_json(row["versions"]),
    }


def _spread(windows: list[float] | None) -> float:
    last = (windows or [])[-STABLE_WINDOWS:]
    return spread(last) if last else 0.0
