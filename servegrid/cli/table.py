"""What the commands print: one console, and tables in which no name is split or cut.

A piped table has one line a row, with tabs between the columns. A terminal draws the table if every word fits
its column, else each row is a block: the first column, then the others as lines.
"""

from __future__ import annotations

import textwrap
from collections.abc import Sequence

from rich.console import Console
from rich.text import Text

from servegrid.domain.errors import printable

console = Console()
READABLE = 20
"""Columns of text that wrap are at least this wide."""
AROUND = 3
"""A drawn column has a border and two spaces more than its text."""

Row = Sequence[str]


def say(text: str, *, style: str = "") -> None:
    """One line of text, printed as it is: no wrapping, no markup."""
    console.print(text, style=style, soft_wrap=True, markup=False, highlight=False, emoji=False)


def print_table(head: Row, rows: Sequence[Row], styles: Sequence[str] = ()) -> None:
    """A table with one style a row; the first column names the row."""
    styles = styles or [""] * len(rows)
    shown = [[" ".join(printable(text).split()) for text in row] for row in rows]
    if not console.file.isatty():
        for row in (head, *shown):
            print("\t".join(row), file=console.file)  # `console` would expand the tabs
        return
    widths = fit([head, *shown], console.width)
    if widths is None:
        _blocks(head, shown, styles)
    else:
        _drawn(head, shown, styles, widths)


def print_markdown(text: str) -> None:
    """A Markdown document: rendered in a terminal, its tables as `print_table` does; piped, as it is."""
    if not console.file.isatty():
        print(text, end="", file=console.file)
        return
    from rich.markdown import Markdown

    for part in text.split("\n\n"):
        lines = part.strip("\n").split("\n")
        if len(lines) > 1 and all(line.startswith("|") for line in lines):
            head, _, *rows = map(_cells, lines)
            print_table(head, rows)
        else:
            console.print(Markdown(part))
        console.print()


def fit(rows: Sequence[Row], width: int) -> list[int] | None:
    """A width for each column so that no word is split; None where `width` is too small."""
    columns = list(zip(*rows, strict=True))
    natural = [max(map(len, column)) for column in columns]
    words = [max(len(word) for text in column for word in (text.split() or [""])) for column in columns]
    least = [max(word, min(READABLE, whole)) for word, whole in zip(words, natural, strict=True)]
    spare = width - AROUND * len(columns) - 1 - sum(least)
    if spare < 0:
        return None
    wanted = [whole - small for whole, small in zip(natural, least, strict=True)]
    share = min(1.0, spare / max(1, sum(wanted)))
    return [small + int(want * share) for small, want in zip(least, wanted, strict=True)]


def _drawn(head: Row, rows: Sequence[Row], styles: Sequence[str], widths: Sequence[int]) -> None:
    from rich.table import Column, Table

    table = Table(*(Column(name, width=width) for name, width in zip(head, widths, strict=True)))
    for row, style in zip(rows, styles, strict=True):
        table.add_row(*map(Text, row), style=style)
    console.print(table)


def _blocks(head: Row, rows: Sequence[Row], styles: Sequence[str]) -> None:
    """Each row as lines; short values share a line, and no word is split."""
    for row, style in zip(rows, styles, strict=True):
        say(row[0], style=f"bold {style}")
        shared: list[str] = []
        for name, text in zip(head[1:], row[1:], strict=True):
            short = len(text) <= READABLE
            if shared and not (short and len("  ".join(["", *shared, name, text])) < console.width):
                say("  " + "  ".join(shared), style=style)
                shared = []
            if short and text:
                shared.append(f"{name}: {text}")
            elif text:
                say(_wrapped(f"{name}: {text}"), style=style)
        if shared:
            say("  " + "  ".join(shared), style=style)


def _wrapped(text: str) -> str:
    return textwrap.fill(
        text,
        max(READABLE, console.width),
        initial_indent="  ",
        subsequent_indent="    ",
        break_long_words=False,
        break_on_hyphens=False,
    )


def _cells(line: str) -> list[str]:
    """The cells of one line of a Markdown table."""
    return [cell.replace("\\|", "|") for cell in line[2:-2].split(" | ")]
