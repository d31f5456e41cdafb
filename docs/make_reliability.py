"""The page docs/reliability.md, which `make reliability` writes: conftest.py gives it what the tests told."""

from __future__ import annotations

import html
import re
from collections.abc import Iterable

SHOWN = 200
HEAD = """# What faults do

What happens when an input is wrong or something fails? Each row is a fault that a test causes on purpose,
what is promised, and what happened in the test's latest run; paths are cut to `...`. After each test its
processes, its servers' shared memory and its temporary files are searched for. `make reliability` writes
this page; `make test` and `make check` run all but the longest of these tests.

"""


def document(tests: Iterable[dict[str, str]]) -> str:
    """The page, from what each test told."""
    parts: dict[str, list[str]] = {}
    counts = dict.fromkeys(("inputs", "others", "wrong", "planned", "kept", "orphans", "leaks", "not"), 0)
    for told in tests:
        failed, skipped = "failed" in told, told.get("skipped", "")
        seen = told.get("happened", "" if failed else "as promised")
        seen = f"not tried here: {skipped}" if skipped else f"WRONG {seen}".strip() if failed else seen
        counts["wrong"] += failed
        counts["not"] += bool(skipped)
        counts["inputs" if told["part"].startswith("Inputs") else "others"] += not skipped
        planned, kept = map(int, told.get("rows", "0 0").split())
        for name, number in (("planned", planned), ("kept", kept)):
            counts[name] += number
        for name in ("orphans", "leaks"):
            counts[name] += int(told.get(name, 0))
        line = f"{row(told['what'], told['promise'])} | {_shown(seen)} |"
        parts.setdefault(told["part"], []).append(line)
    figures = [
        ("distinct classes of input tried", counts["inputs"]),
        ("other faults tried", counts["others"]),
        ("not tried on the host where this was made", counts["not"]),
        ("wrong outcomes", counts["wrong"]),
        ("rows that campaigns under a fault should have written", counts["planned"]),
        ("rows lost", counts["planned"] - counts["kept"]),
        ("processes left", counts["orphans"]),
        ("shared memory and temporary files left", counts["leaks"]),
    ]
    lines = ["| what | count |", "| --- | --- |", *(f"| {name} | {number} |" for name, number in figures)]
    for part in sorted(parts, key=lambda name: (not name.startswith("Inputs"), name)):
        lines += ["", f"## {part}", "", "| fault | promised | what happened |", "| --- | --- | --- |"]
        lines += parts[part]
    return HEAD + "\n".join(lines) + "\n"


def row(what: str, promise: str) -> str:
    """The row of a fault, but for what happened."""
    return f"| {_shown(what)} | {_shown(promise)}"


def _shown(text: str) -> str:
    """A cell of the table: one line, without the folders that a run makes for itself."""
    text = re.sub(r"(/[\w.-]+)+/pytest-of-\w+/pytest-\d+(/popen-\w+)?/", ".../", " ".join(text.split()))
    text = "".join(c if c.isprintable() else repr(c)[1:-1] for c in text)
    text = text if len(text) <= SHOWN else f"{text[:SHOWN]} ..."
    return html.escape(text, quote=False).replace("|", "\\|")
