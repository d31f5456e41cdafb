"""Writes docs/formats.md from tests/expected_cells.csv:  python docs/make_formats.py"""

from __future__ import annotations

import csv
import re
from pathlib import Path

ROOT = Path(__file__).parents[1]
PRECISIONS = ("fp32", "fp16", "bf16", "int8")
CELL = re.compile(
    r"(?P<model>.+)-tiny-(?P<format>ts-trace|ts-script|aoti|onnx|trt|tf-savedmodel|tf-trt)"
    rf"-(?P<precision>{'|'.join(PRECISIONS)})(?:-(?P<accelerator>trt|amp))?(?:-from-.+)?"
)
HEAD = """# What runs on a CPU

This table shows the formats and precisions that a host without a GPU serves: the verdict of each cell of the
five tiny models. `servegrid plan` gives the reason for an `unsupported` cell. `docs/make_formats.py` makes
this page from `tests/expected_cells.csv`, which `make cells` compares with a sweep of all these cells.

"""


def text(cells: str) -> str:
    """The page, from the content of the CSV file."""
    rows: dict[tuple[str, str], dict[str, str]] = {}
    for entry in csv.DictReader(cells.splitlines()):
        found = CELL.fullmatch(entry["cell"])
        assert found, entry
        format_ = found["format"] + (f" + {found['accelerator']}" if found["accelerator"] else "")
        rows.setdefault((found["model"], format_), {})[found["precision"]] = entry["verdict"]
    lines = [f"| model | format | {' | '.join(PRECISIONS)} |", "| --- " * (2 + len(PRECISIONS)) + "|"]
    for (model, format_), verdicts in rows.items():
        shown = " | ".join(verdicts.get(precision, "") for precision in PRECISIONS)
        lines.append(f"| {model} | {format_} | {shown} |")
    passed = sum(verdict == "passed" for verdicts in rows.values() for verdict in verdicts.values())
    return HEAD + "\n".join(lines) + f"\n\n{passed} cells pass.\n"


if __name__ == "__main__":
    cells = (ROOT / "tests" / "expected_cells.csv").read_text(encoding="utf-8")
    (ROOT / "docs" / "formats.md").write_text(text(cells), encoding="utf-8")
