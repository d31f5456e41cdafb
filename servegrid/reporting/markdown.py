"""report.md: for a terminal or a pull request."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import polars as pl

from servegrid.campaign.columns import parse_json
from servegrid.campaign.results import FAILING
from servegrid.domain.slo import Slo
from servegrid.reporting.columns import PUBLISHED
from servegrid.reporting.history import Move
from servegrid.reporting.recommendation import NOTHING, UNPROVEN, best, lead_text, other_checks
from servegrid.reporting.tables import ENERGY, in_a_line

FAILED_SHOWN = 20
"""Failed cells in a summary."""


def document(
    campaign: str,
    cells: pl.DataFrame,
    measurements: pl.DataFrame,
    slo: Slo | None = None,
    published: pl.DataFrame | None = None,
    moves: Sequence[Move] = (),
) -> str:
    """The whole report; `published` has our points with NVIDIA's rows, `moves` the changes since earlier
    campaigns."""
    parts = [*_head(campaign, cells, measurements, slo), "## Cells", _cells(cells)]
    errors = cells.filter(pl.col("verdict") == "error")
    if errors.height:
        again = f"`servegrid bundle CELL FOLDER --campaign {campaign}` writes what repeats the error."
        parts += ["## Errors", _errors(errors), again]
    if moves:
        parts += ["## Changes beyond noise", _moves(moves)]
    for scenario in ("offline", "online"):
        rows = measurements.filter(pl.col("scenario") == scenario)
        if rows.height:
            parts += [f"## {scenario.capitalize()}", _points(rows)]
    if published is not None and published.height:
        parts += ["## Compared with NVIDIA's published figures", _published(published)]
    parts += ["## Time", _time(cells), "## Versions", _versions(cells)]
    return "\n\n".join(parts) + "\n"


def summary(campaign: str, cells: pl.DataFrame, measurements: pl.DataFrame, slo: Slo | None = None) -> str:
    """The recommendations, the count of each verdict, and the first failed cells: short for any campaign."""
    parts = [*_head(campaign, cells, measurements, slo), "## Cells", verdicts(cells)]
    failed = cells.filter(pl.col("verdict").is_in(FAILING))
    parts += [_cells(failed.head(FAILED_SHOWN))] if failed.height else []
    return "\n\n".join(parts) + "\n"


def verdicts(cells: pl.DataFrame) -> str:
    """The number of cells of each verdict."""
    counts = cells["verdict"].value_counts(sort=True).iter_rows()
    return ", ".join(f"{number} {verdict}" for verdict, number in counts) or "no cell has finished yet"


def _head(campaign: str, cells: pl.DataFrame, measurements: pl.DataFrame, slo: Slo | None) -> list[str]:
    ship = _recommendations(cells, measurements, slo)
    return [f"# servegrid campaign {campaign}", _where(cells), "## What to ship", ship]


def _where(cells: pl.DataFrame) -> str:
    if cells.is_empty():
        return "No cell has finished yet."
    row = cells.row(0, named=True)
    host = parse_json(row["environment"])
    words_of = {"cores": "{} cores", "memory_gb": "{} GB", "system": "{}", "python": "Python {}"}
    known = [words.format(host[name]) for name, words in words_of.items() if name in host]
    return ", ".join([f"On {row['gpu']} (profile `{row['profile']}`)", *known]) + "."


def _recommendations(cells: pl.DataFrame, measurements: pl.DataFrame, slo: Slo | None) -> str:
    found, verdict = best(cells, measurements, slo)
    rows = [
        (
            f"{c.model}: {c.objective}",
            f"{c.format} {c.precision}, {c.instances} instance(s)",
            f"batch {c.batch}, {' '.join(c.load)}",
            f"{c.throughput:.1f}",
            f"{c.p99_ms:.2f}",
            c.accuracy,
            lead_text(c),
        )
        for c in found
    ]
    if not rows:
        return NOTHING
    ship = "ship" if verdict == "passed" else "measured only"
    table = _table(("for", ship, "at", "inferences/s", "p99 ms", "accuracy", "lead"), rows)
    return table if verdict == "passed" else f"{UNPROVEN}\n\n{table}"


def _cells(cells: pl.DataFrame) -> str:
    rows = [
        (
            row["cell"],
            row["verdict"],
            row["metric_reference"] or "",
            _number(row["framework_metric"], 4),
            _number(row["converted_metric"], 4),
            _metrics(row["metrics"]),
            _number(row["shuffled_metric"], 4),
            _number(row["largest_difference"], 6),
            _number(row["invariance"], 6),
            in_a_line(row["reason"] or ""),
        )
        for row in cells.iter_rows(named=True)
    ]
    head = (
        "cell",
        "verdict",
        "metric compares with",
        "metric, framework",
        "converted",
        "served",
        "shuffled",
        "largest difference",
        "invariance",
    )
    return _table((*head, "reason"), rows)


def _metrics(text: str | None) -> str:
    """Every metric of the served model."""
    return ", ".join(f"{name} {value:.4f}" for name, value in parse_json(text).items())


def _errors(errors: pl.DataFrame) -> str:
    rows = [(row["cell"], row["log"] or "", row["command"] or "") for row in errors.iter_rows(named=True)]
    return _table(("cell", "log", "command to repeat"), rows)


def _moves(moves: Sequence[Move]) -> str:
    rows = [(m.cell, m.what, m.before, m.after, m.by, m.campaigns[0], m.with_it) for m in moves]
    return _table(("cell", "figure", "from", "to", "by", "since campaign", "settings that changed"), rows)


def _points(rows: pl.DataFrame) -> str:
    columns = {
        "inferences/s": "throughput",
        "p50 ms": "p50_ms",
        "p95 ms": "p95_ms",
        "p99 ms": "p99_ms",
        "avg ms": "avg_ms",
        "queue ms": "server_queue_ms",
        "infer ms": "server_compute_infer_ms",
        "framework avg ms": "framework_avg_ms",
    }
    rows = rows.with_columns(ENERGY)
    if rows["energy_j_per_1000"].null_count() < rows.height:
        columns["J per 1000"] = "energy_j_per_1000"
    body = [
        (
            row["cell"],
            str(row["batch"]),
            str(row["concurrency"] or ("" if row["request_rate"] is None else f"{row['request_rate']:g}/s")),
            *(_number(row[column], 2) for column in columns.values()),
            _trust(row["stable"], row["failed_checks"]),
        )
        for row in rows.iter_rows(named=True)
    ]
    return _table(("cell", "batch", "concurrency", *columns, "stable"), body)


def _published(rows: pl.DataFrame) -> str:
    named = [column for column in PUBLISHED if column.name in rows.columns]
    body = [
        [_number(row[c.name], c.digits) if c.digits is not None else str(row[c.name] or "") for c in named]
        for row in rows.iter_rows(named=True)
    ]
    return _table([column.title for column in named], body)


def _trust(stable: bool, failed_checks: Sequence[str] | None) -> str:
    """Whether a point is stable, and the other trust checks that it fails."""
    return ", ".join(["yes" if stable else "unstable", *other_checks(failed_checks)])


def _time(cells: pl.DataFrame) -> str:
    ran = cells.filter(pl.col("wall_s").is_not_null())
    rows = [
        (
            row["cell"],
            _number(row["wall_s"], 1),
            _number(row["server_s"], 1),
            _number(row["orchestration_s"], 2),
            ", ".join(f"{name} {seconds:.1f}" for name, seconds in parse_json(row["stage_s"]).items()),
        )
        for row in ran.iter_rows(named=True)
    ]
    head = ("cell", "wall s", "server start and stop s", "orchestration s", "stages s")
    return _table(head, rows) if rows else "No cell ran."


def _versions(cells: pl.DataFrame) -> str:
    found: dict[str, str] = {}
    for text in cells["versions"]:
        found |= parse_json(text)
    return ", ".join(f"{name} {version}" for name, version in sorted(found.items())) or "none"


def _number(value: float | None, digits: int) -> str:
    return "" if value is None else f"{value:.{digits}f}"


def _table(head: Sequence[str], rows: Iterable[Sequence[str | None]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join("| " + " | ".join(map(_cell, line)) + " |" for line in lines)


def _cell(text: str | None) -> str:
    return " ".join((text or "").split("\n", 1)[0].replace("|", "\\|").split())
