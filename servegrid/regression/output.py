"""A comparison as rows of a table, as JUnit XML, for a build server, and as Markdown, for a pull request."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from xml.etree import ElementTree

from servegrid.regression.verdict import CellComparison, Comparison, Judged

MARKS = {"regressed": "🔴 regressed", "improved": "🟢 improved", "same": "same", "unclear": "unclear"}
CELL_HEAD = ("cell", "verdict", "what moved")
HEAD = ("cell", "point", "column", "A", "B", "change (interval)", "noise floor", "verdict")


def summary(comparison: Comparison) -> str:
    """The number of cells of each verdict, in one line."""
    changes = [cell.change for cell in comparison.cells if not cell.only_in]
    counts = [f"{changes.count(kind)} {kind}" for kind in MARKS if kind in changes]
    only_in = Counter[str](cell.only_in for cell in comparison.cells)
    alone = [f"{only_in[name]} only in {name}" for name in "AB" if only_in[name]]
    return ", ".join([*counts, *alone])


def line(cell: CellComparison) -> tuple[str, ...]:
    """The row below CELL_HEAD: each figure that certainly moved, then how many did not."""
    if cell.only_in:
        return cell.cell, f"only in {cell.only_in}", ""
    moved = [entry for entry in cell.judged if entry.change in ("regressed", "improved")]
    parts = [cell.broken] if cell.broken else []
    parts += [
        f"{entry.figures.point}: {entry.figures.metric} {entry.a:.2f} to {entry.b:.2f}, {entry.text}"
        for entry in moved
    ]
    others = Counter(entry.change for entry in cell.judged if entry not in moved)
    parts += [f"{count} figures {change}" for change, count in others.items()]
    return cell.cell, cell.change, "; ".join(parts)


def lines(cell: CellComparison, judged: Iterable[Judged]) -> list[tuple[str, ...]]:
    """The rows below HEAD."""
    return [
        (
            cell.cell,
            entry.figures.point,
            entry.figures.metric,
            f"{entry.a:.2f}",
            f"{entry.b:.2f}",
            entry.text,
            "" if entry.interval is None else f"{entry.interval.floor:.1%}",
            entry.change,
        )
        for entry in judged
    ]


def junit(comparison: Comparison) -> str:
    """JUnit XML in the form of Ant's task: a test case for each cell, failed where it regressed, skipped
    where only A or only B has it."""
    cells = comparison.cells
    suite = ElementTree.Element(
        "testsuite",
        name=f"servegrid compare {comparison.a} {comparison.b}",
        tests=str(len(cells)),
        failures=str(len(comparison.regressed)),
        errors="0",
        skipped=str(sum(bool(cell.only_in) for cell in cells)),
    )
    for cell in cells:
        case = ElementTree.SubElement(suite, "testcase", classname="servegrid.compare", name=cell.cell)
        if cell.only_in:
            ElementTree.SubElement(case, "skipped", message=f"only in {cell.only_in}")
            continue
        worse = [entry for entry in cell.judged if entry.change == "regressed"]
        if cell.change == "regressed":
            reasons = [
                f"{e.figures.point}: {e.figures.metric} {e.a:.2f} -> {e.b:.2f}, {e.text}" for e in worse
            ]
            reasons = [*filter(None, [cell.broken]), *reasons]
            ElementTree.SubElement(case, "failure", message=reasons[0]).text = "\n".join(reasons)
        output = ElementTree.SubElement(case, "system-out")
        rows = [*cell.differences, *("  ".join(line[1:]) for line in lines(cell, cell.judged))]
        output.text = "\n".join([comparison.method, *comparison.conditions, *rows])
    ElementTree.indent(suite)
    return ElementTree.tostring(suite, encoding="unicode", xml_declaration=True) + "\n"


def markdown(comparison: Comparison) -> str:
    """The changed figures first, then all figures, folded."""
    parts = [f"### servegrid: `{comparison.a}` (A) against `{comparison.b}` (B)", summary(comparison)]
    around = [f"- {entry}" for entry in comparison.conditions]
    differences = dict.fromkeys(d for cell in comparison.cells for d in cell.differences)
    around += [f"- **different settings:** {entry}" for entry in differences]
    if around:
        parts.append("\n".join(["Different conditions and settings:", *around]))
    broken = [f"- {MARKS['regressed']}: {c.cell}: {c.broken}" for c in comparison.cells if c.broken]
    if broken:
        parts.append("\n".join(broken))
    certain = [
        line
        for cell in comparison.cells
        for line in lines(cell, (e for e in cell.judged if e.change in ("regressed", "improved")))
    ]
    if certain:
        parts.append(_table(certain))
    every = [line for cell in comparison.cells for line in lines(cell, cell.judged)]
    parts.append(f"<details><summary>All {len(every)} figures</summary>\n\n{_table(every)}\n\n</details>")
    parts.append(f"<sub>{comparison.method}.</sub>")
    return "\n\n".join(parts) + "\n"


def _table(rows: list[tuple[str, ...]]) -> str:
    body = [(*row[:-1], MARKS[row[-1]]) for row in rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in (HEAD, ["---"] * len(HEAD), *body))
