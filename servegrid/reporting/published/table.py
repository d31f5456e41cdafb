"""`models/<model>/published.csv`: NVIDIA's figures of a model, made by docs/make_published.py.

One row for each row of a published table: our names of it, then `parameter: ...` and `column: ...` under the
document's own names, so that the file keeps the form of the table too.
"""

from __future__ import annotations

from pathlib import Path

import polars as pl

from servegrid.domain.values import Value
from servegrid.reporting.published.document import Section

PARAMETER, COLUMN, EXAMPLE = "parameter: ", "column: ", "example: "
"""Prefixes of columns; an `example` is of the document's one configuration of its scripts."""
LENGTH = pl.coalesce(
    pl.col("parameters").str.json_path_match(f"$.{name}") for name in ("max_seq_length", "sequence_length")
).alias("length")
"""The sequence length of our rows, as text."""


class Form(Value):
    """Which parameters and columns published tables have, with their prefixes, in their order."""

    parameters: tuple[str, ...]
    columns: tuple[str, ...]


def read(models: Path, names: list[str]) -> dict[str, pl.DataFrame]:
    """The published.csv of every model that has one; every value is text as printed."""
    paths = {name: models / name / "published.csv" for name in names}
    return {name: pl.read_csv(p, infer_schema=False) for name, p in paths.items() if p.is_file()}


def form(rows: pl.DataFrame) -> Form:
    """The form of rows that stand in one table, or in tables that are alike."""
    held = [name for name in rows.columns if rows[name].null_count() < rows.height]
    return Form(
        parameters=tuple(name for name in held if name.startswith(PARAMETER)),
        columns=tuple(name for name in held if name.startswith(COLUMN)),
    )


def section(
    scenario: str,
    title: str,
    parameters: dict[str, str],
    columns: tuple[str, ...],
    rows: list[tuple[str, ...]],
) -> Section:
    """A section of parameters and columns that bear their prefixes."""
    return Section(
        scenario=scenario.capitalize(),
        title=title,
        parameters={name.removeprefix(PARAMETER): value for name, value in parameters.items()},
        columns=tuple(name.removeprefix(COLUMN) for name in columns),
        rows=tuple(rows),
    )


def sections(table: pl.DataFrame) -> tuple[Section, ...]:
    """The sections that the rows of a published.csv were made from."""
    found = []
    for (scenario, title), rows in table.group_by("scenario", "title", maintain_order=True):
        of_section = form(rows)
        first = rows.row(0, named=True)
        figures = rows.select(pl.col(of_section.columns).fill_null("")).rows()
        parameters = {name: first[name] for name in of_section.parameters}
        found.append(section(str(scenario), str(title), parameters, of_section.columns, figures))
    return tuple(found)


def plain(name: str) -> str:
    """A published name without prefix and unit, in lower case."""
    return name.removeprefix(PARAMETER).removeprefix(COLUMN).removesuffix(" (ms)").lower()
