"""The documents in which NVIDIA published its figures: read, and sections written in their form.

A section is one configuration of one scenario: its parameters and its table, cell by cell as printed.
"""

from __future__ import annotations

import re

from servegrid.domain.values import Value

HEADING = re.compile(r"[# ]*(Offline|Online): (.+)")
COMMON = re.compile(r"[# ]*(Offline|Online) scenario$")
BULLET = re.compile(r" \* \*\*(.+?):\*\* +(.+)")
PLAIN = re.compile(
    r"(GPU|Backend accelerator|Backend|Precision|Model format|Max batch size|Number of model instances|"
    r"Export Format|NVIDIA TensorRT Capture CUDA Graph|Device Kind|Torch Jit) (.+)"
)
"""Parameters of the one document whose tables were flattened to text."""


class Section(Value):
    """One configuration: every value is text as printed."""

    scenario: str
    title: str
    parameters: dict[str, str]
    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]


def parse(text: str) -> tuple[Section, ...]:
    """Every section of a document, or of what `render` wrote."""
    found: list[Section] = []
    common: dict[str, str] = {}
    section: Section | None = None
    for line in text.splitlines():
        line = line.rstrip()
        if COMMON.fullmatch(line):
            common, section = {}, None
        elif heading := HEADING.fullmatch(line):
            section = Section(scenario=heading[1], title=heading[2], parameters=common, columns=(), rows=())
            found.append(section)
        elif section is not None and line.startswith("Results Table |"):
            found[-1] = section = _flattened(section, line.removeprefix("Results Table "))
        elif cells := _cells(line):
            if len(cells) == 2 and (section is None or not section.columns):
                common, section = _with(common, section, *cells)
            elif section is not None and len(cells) > 2:
                section = _with_row(section, cells)
        elif pair := BULLET.fullmatch(line) or PLAIN.fullmatch(line):
            common, section = _with(common, section, pair[1], pair[2])
        if section is not None:
            found[-1] = section
    return tuple(section for section in found if section.rows)


def render(sections: tuple[Section, ...]) -> str:
    """The sections as Markdown, every parameter and column in the document's own names and order."""
    parts = []
    for section in sections:
        width = len(section.columns)
        tables = [("Parameter Name", "Parameter Value"), ("---", "---"), *section.parameters.items()]
        parts += [f"#### {section.scenario}: {section.title}", "\n".join(map(_line, tables))]
        parts.append("\n".join(map(_line, (section.columns, ("---",) * width, *section.rows))))
    return "\n\n".join(parts) + "\n"


def _cells(line: str) -> tuple[str, ...]:
    """The cells of a line of a Markdown table; none of any other line, a separator or a row of images."""
    if not line.startswith("|") or not line.endswith("|") or "](" in line:
        return ()
    cells = tuple(cell.strip() for cell in line[1:-1].split("|"))
    if all(re.fullmatch(r":?-+:?", cell) for cell in cells) or cells[0] == "Parameter Name":
        return ()
    return cells


def _with(
    common: dict[str, str], section: Section | None, name: str, value: str
) -> tuple[dict[str, str], Section | None]:
    """A parameter of the section, or before the first one of all sections of the scenario."""
    if section is None:
        return common | {name: value.strip()}, None
    parameters = section.parameters | {name: value.strip()}
    return common, section.model_copy(update={"parameters": parameters})


def _with_row(section: Section, cells: tuple[str, ...]) -> Section:
    if not section.columns:
        return section.model_copy(update={"columns": cells})
    assert len(cells) == len(section.columns), (section.title, cells)
    return section.model_copy(update={"rows": (*section.rows, cells)})


def _flattened(section: Section, line: str) -> Section:
    """A table whose lines stand in one: each ends where the next begins."""
    for row in re.split(r"(?<=\|) (?=\|)", line):
        if cells := _cells(row.strip()):
            section = _with_row(section, cells)
    return section


def _line(cells: tuple[str, ...]) -> str:
    return f"| {' | '.join(cells)} |"
