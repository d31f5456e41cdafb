"""The page docs/reliability.md, which `make reliability` writes from the results of the tests of faults."""

from __future__ import annotations

import html
import re
from collections.abc import Iterable

SHOWN = 200
HEAD = """# Faults and their effects

A wrong input or a failing part ends with a clear error and leaves nothing behind. Each row is a fault that a
test causes on purpose, with the promised effect and the result of the test's latest run; paths are cut to
`...`. After each test a search finds any process, shared memory or temporary file that remained.
`make reliability` writes this page; `make test` and `make check` run all but the longest of these tests.

"""


def document(tests: Iterable[dict[str, str]]) -> str:
    """The page, from the results of the tests."""
    parts: dict[str, list[str]] = {}
    counts = dict.fromkeys(("inputs", "others", "wrong", "planned", "kept", "orphans", "leaks", "not"), 0)
    for test in tests:
        failed, skipped = "failed" in test, test.get("skipped", "")
        seen = test.get("happened", "" if failed else "as promised")
        seen = f"not tried here: {skipped}" if skipped else f"WRONG {seen}".strip() if failed else seen
        counts["wrong"] += failed
        counts["not"] += bool(skipped)
        counts["inputs" if test["part"].startswith("Inputs") else "others"] += not skipped
        planned, kept = map(int, test.get("rows", "0 0").split())
        for name, number in (("planned", planned), ("kept", kept)):
            counts[name] += number
        for name in ("orphans", "leaks"):
            counts[name] += int(test.get(name, 0))
        line = f"{row(test['what'], test['promise'])} | {_shown(seen)} |"
        parts.setdefault(test["part"], []).append(line)
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
    """The row of a fault without its result."""
    return f"| {_shown(what)} | {_shown(promise)}"


def _shown(text: str) -> str:
    """A cell of the table: one line, without the folders that a run makes for itself."""
    text = re.sub(r"(/[\w.-]+)+/pytest-of-\w+/pytest-\d+(/popen-\w+)?/", ".../", " ".join(text.split()))
    text = "".join(c if c.isprintable() else repr(c)[1:-1] for c in text)
    text = text if len(text) <= SHOWN else f"{text[:SHOWN]} ..."
    return html.escape(text, quote=False).replace("|", "\\|")
