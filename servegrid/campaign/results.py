"""Rows of a campaign: written one by one as cells finish, read back as tables of cells and of points."""

from __future__ import annotations

import fcntl
import json
import logging
import os
import re
from collections.abc import Sequence
from pathlib import Path
from typing import IO, Any, Literal

import polars as pl

from servegrid.campaign.campaign_folders import unknown_campaign
from servegrid.campaign.columns import (
    LOAD,
    MEASURED,
    OBJECTS,
    RENAMED,
    SERVING,
    TRUST,
    fill_old_rows,
    holds_object,
    to_json,
)
from servegrid.campaign.layout import CampaignLayout
from servegrid.domain.errors import UserError
from servegrid.host.files import writing

log = logging.getLogger("servegrid")

Verdict = Literal[
    "passed", "measured", "failed_accuracy", "unstable", "infeasible", "unsupported", "error", "skipped"
]  # fmt: skip
FAILING: tuple[Verdict, ...] = ("error", "failed_accuracy")
"""A campaign with a cell of these exits 1, as does one that did not reach all of its cells."""
WHOLE: tuple[Verdict, ...] = ("passed", "measured", "unstable")
"""Cells of these ran through every stage."""
SETTLED: tuple[Verdict, ...] = (*WHOLE, "failed_accuracy", "infeasible", "unsupported")
"""Cells of these are not run again when a campaign is resumed."""

Row = dict[str, Any]
Kind = Literal["cell", "measurement"]

PUBLISHED_KEYS = (
    "model",
    "scenario",
    "gpu",
    "format",
    "precision",
    "accelerator",
    "max_batch_size",
    "instances",
    "sequence_length",
    "batch",
    "concurrency",
)

COMMON: dict[str, pl.DataType] = {
    **dict.fromkeys(("campaign", "cell", "profile", "gpu", "cpu", "host", "model", "variant"), pl.String()),
    "parameters": pl.String(),
    "model_digest": pl.String(),
    "settings": pl.List(pl.String()),
    **dict.fromkeys(("export_format", "export_precision", "format", "precision"), pl.String()),
    **dict.fromkeys(("accelerator", "accelerator_precision"), pl.String()),
    "opset": pl.Int64(),
    **dict.fromkeys(("torch_jit", "triton_release", "versions", "environment"), pl.String()),
    **dict.fromkeys(("artifact_digest", "samples_digest"), pl.String()),
    "random_weights": pl.Boolean(),
    **dict.fromkeys(("card_uuid", "flow_run", "worker"), pl.String()),
    "worker_pid": pl.Int64(),
    **dict.fromkeys(("started_at", "ended_at"), pl.String()),
}
"""card_uuid: of the card that was measured; flow_run, worker, worker_pid: the `qualify` run that wrote the
row, its Prefect worker and its process; started_at, ended_at: of a cell its run, of a point its measurement,
ISO 8601 in UTC."""
CELLS: dict[str, pl.DataType] = {
    **COMMON,
    **dict.fromkeys(("static", "dynamic", "offline", "online"), pl.String()),
    **dict.fromkeys(("server", "server_version", "backend"), pl.String()),
    **dict.fromkeys(
        ("verdict", "reason", "log", "command", "metric", "metric_reference", "metrics"), pl.String()
    ),
    **dict.fromkeys(
        tuple(f"{name}_metric" for name in ("framework", "converted", "served", "shuffled")), pl.Float64()
    ),
    **dict.fromkeys(("metric_drop", "largest_difference", "least_cosine", "not_finite"), pl.Float64()),
    "invariance": pl.Float64(),
    **dict.fromkeys(("artifact_bytes", "server_peak_bytes", "largest_batch"), pl.Int64()),
    "load_clients": pl.Int64(),
    "load_batches": pl.String(),
    **dict.fromkeys(("stage_s", "waits"), pl.String()),
    **dict.fromkeys(("wall_s", "server_s", "orchestration_s", "proof_share"), pl.Float64()),
}
MEASUREMENTS: dict[str, pl.DataType] = {
    **COMMON,
    **SERVING,
    **dict.fromkeys(("scenario", "shared_memory", "input_data"), pl.String()),
    "warm_up": pl.Boolean(),
    **dict.fromkeys(("batch", "concurrency", "minimum_request_count", "request_count"), pl.Int64()),
    **dict.fromkeys(MEASURED, pl.Float64()),
    **dict.fromkeys(("minimum_window_s", "framework_avg_ms"), pl.Float64()),
    **dict.fromkeys(("flops_per_inference", "limit_throughput", "share_of_limit"), pl.Float64()),
    "limit": pl.String(),
    **LOAD,
    "windows_throughput": pl.List(pl.Float64()),
    "windows_avg_ms": pl.List(pl.Float64()),
    "stable": pl.Boolean(),
    **dict.fromkeys(("generator", "generator_version"), pl.String()),
    **TRUST,
}


class Writer:
    """Appends rows to a campaign; any number of processes may do so at once.

    A row that was written survives any crash after it.
    """

    def __init__(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.folder = folder
        self._path = CampaignLayout(folder=folder).rows

    def append(self, kind: Kind, row: Row) -> None:
        """One row."""
        self.append_all([(kind, row)])

    def append_all(self, rows: Sequence[tuple[Kind, Row]]) -> None:
        """Rows that belong together, in one go."""
        for kind, row in rows:
            known = CELLS if kind == "cell" else MEASUREMENTS
            assert not set(row) - set(known), set(row) - set(known)
        lines = b"".join(to_json({"kind": kind} | row).encode() + b"\n" for kind, row in rows)
        with writing(self._path), self._path.open("a+b") as file:
            fcntl.flock(file, fcntl.LOCK_EX)  # the kernel lets go of it with the file, or with this process
            if file.seek(0, os.SEEK_END) and not _ends_with_newline(file):
                file.write(b"\n")  # a crash cut the last row off: let it not take this one along
            file.write(lines)
            file.flush()
            os.fsync(file.fileno())


def _ends_with_newline(file: IO[bytes]) -> bool:
    file.seek(-1, os.SEEK_END)
    return file.read(1) == b"\n"


def campaign_folder(results: Path, campaign: str) -> Path:
    """The folder of a campaign.

    Raises:
        UserError: the name could lead elsewhere.
    """
    if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}", campaign):
        raise UserError(f"campaign {campaign!r}: up to 100 letters, digits, '.', '_' and '-' make its name")
    return results / campaign


def read(folder: Path) -> tuple[pl.DataFrame, pl.DataFrame]:
    """The cells and the measurements of a campaign, as far as it has come.

    A cell may have been run more than once: interrupted, and again when the campaign was resumed. The first
    row with a settled verdict stands, else the last; and those measurements which the same run made.

    Raises:
        UserError: there is no such campaign.
    """
    path = CampaignLayout(folder=folder).rows
    if not path.is_file():
        raise unknown_campaign(path)
    rows: dict[str, list[Row]] = {"cell": [], "measurement": []}
    for number, line in enumerate(path.read_bytes().split(b"\n"), 1):
        row = _row(line)
        if row:
            rows[row.pop("kind")].append(row)
        elif line:
            log.warning("%s: line %d is no row; a crash may have cut it off", path, number)
    cells: dict[str, Row] = {}
    for row in rows["cell"]:
        if cells.get(_key(row), {}).get("verdict") not in SETTLED:
            cells[_key(row)] = row
    measurements = [
        row
        for row in rows["measurement"]
        if _key(row) not in cells or cells[_key(row)].get("flow_run") == row.get("flow_run")
    ]
    return _table(list(cells.values()), CELLS), _table(measurements, MEASUREMENTS)


def _row(line: bytes) -> Row | None:
    """The row in a line, or None. A value that is no object in a column of objects becomes null, with a
    warning."""
    try:
        row = json.loads(line)
    except (ValueError, RecursionError):
        return None
    if not isinstance(row, dict) or row.get("kind") not in ("cell", "measurement"):
        return None
    for old, new in RENAMED.items():
        if old in row:
            row[new] = row.pop(old)
    for name in OBJECTS:
        if row.get(name) is not None and not holds_object(name, row[name]):
            log.warning("row of %r: %s holds no such object: %.200r", row.get("cell"), name, row[name])
            row[name] = None
    return row


def _key(row: Row) -> str:
    """What tells a cell of a campaign from the others: its name and profile."""
    return json.dumps([row.get("cell"), row.get("profile")])


def _table(rows: list[Row], schema: dict[str, pl.DataType]) -> pl.DataFrame:
    """The rows as a table; a row with values of other types than its columns is left out, with a warning."""
    try:
        return fill_old_rows(pl.DataFrame(rows, schema=schema))
    except (TypeError, ValueError, OverflowError, pl.exceptions.PolarsError):
        if len(rows) == 1:
            log.warning("a row of the campaign has values of other types than its columns: %.200s", rows[0])
            return pl.DataFrame(schema=schema)
        return pl.concat(_table([row], schema) for row in rows)


def finished(folder: Path) -> set[tuple[str, str]]:
    """Cell and profile of every row with a settled verdict: what a resumed campaign leaves as it is."""
    if not CampaignLayout(folder=folder).rows.exists():
        return set()
    cells, _ = read(folder)
    return set(cells.filter(pl.col("verdict").is_in(SETTLED)).select("cell", "profile").iter_rows())


def published_columns(measurements: pl.DataFrame, scenario: str) -> pl.DataFrame:
    """One scenario's points in the columns, order and units of the published tables, which have none at a
    request rate."""
    # The published tables call this one parameter of BERT and FastPitch a column of their own.
    length = pl.col("parameters").str.json_path_match("$.max_seq_length").cast(pl.Int64, strict=False)
    of_scenario = (pl.col("scenario") == scenario) & pl.col("request_rate").is_null()
    found = measurements.filter(of_scenario).with_columns(sequence_length=length)
    return found.select(*PUBLISHED_KEYS, *MEASURED).rename(MEASURED)
