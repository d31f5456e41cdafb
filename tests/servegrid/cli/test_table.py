"""Printed tables: no name is split or cut, in a terminal of any width or in a pipe."""

from __future__ import annotations

import io
import os
import pty
import re
import subprocess
import sys
from pathlib import Path

import pytest

from servegrid.campaign.columns import MEASURED
from servegrid.campaign.results import Row, Writer
from servegrid.cli.table import console, fit, print_markdown, print_table

COMMAND = [sys.executable, "-c", "from servegrid.cli.main import main; main()"]
NAME = "bert_large_qa-tiny-tf-savedmodel-fp16-with-a-name-of-over-eighty-characters-as-some-have"
CELL: Row = {
    **{"cell": NAME, "profile": "cpu", "model": "bert_large_qa", "variant": "tiny", "verdict": "passed"},
    **{"gpu": "none", "random_weights": False, "versions": '{"onnx": "1"}', "environment": '{"cores": 2}'},
    **{"dynamic": "{}", "stage_s": '{"export": 1.5}', "wall_s": 2.0},
}
POINT: Row = {
    **{"cell": NAME, "profile": "cpu", "gpu": "none", "model": "bert_large_qa", "random_weights": False},
    **{"format": "onnx", "precision": "fp16", "parameters": "{}", "instances": 1, "batch": 1},
    **{"concurrency": 4, "scenario": "online", "stable": True, "environment": "{}", "versions": "{}"},
    **dict.fromkeys(MEASURED, 20.0),
}


@pytest.fixture
def site(tmp_path: Path) -> dict[str, str]:
    """Two campaigns of one cell, of which the newer is half as fast."""
    for name, throughput in (("c1", 40.0), ("c2", 20.0)):
        writer = Writer(tmp_path / "results" / name)
        writer.append("cell", CELL | {"campaign": name})
        windows = {"windows_throughput": [throughput] * 3, "windows_avg_ms": [20.0] * 3}
        writer.append("measurement", POINT | windows | {"campaign": name, "throughput": throughput})
    folders = {f"SERVEGRID_{name}": str(tmp_path / name.lower()) for name in ("HOME", "RESULTS", "SOURCES")}
    plain = {name: text for name, text in os.environ.items() if not name.startswith("PREFECT_")}
    return plain | folders | {"PREFECT_HOME": str(tmp_path / "prefect"), "TERM": "xterm", "COLUMNS": "80"}


def piped(*words: str, env: dict[str, str]) -> str:
    done = subprocess.run([*COMMAND, *words], env=env, capture_output=True, text=True, timeout=300)
    assert done.returncode in (0, 1, 2) and not done.stderr, done.stderr
    return done.stdout


def in_a_terminal(*words: str, env: dict[str, str]) -> str:
    """The output in a terminal of 80 columns, without colours."""
    master, slave = pty.openpty()
    with subprocess.Popen([*COMMAND, *words], env=env, stdin=slave, stdout=slave, stderr=slave) as process:
        os.close(slave)
        found = b""
        while True:
            try:
                part = os.read(master, 4096)
            except OSError:  # the process has closed the other end
                break
            found += part
        os.close(master)
        assert process.wait(timeout=300) in (0, 1, 2)
    return re.sub(r"\x1b\[[0-9;]*m", "", found.decode()).replace("\r\n", "\n")


def names(text: str) -> set[str]:
    """The names of cells that stand in a text as a whole."""
    return set(re.findall(r"bert_large_qa-tiny-[\w-]+", text))


def test_plan_shows_whole_names_in_a_pipe_and_in_a_terminal(site: dict[str, str]) -> None:
    lines = piped("plan", env=site).splitlines()
    *rows, summary = lines[1:]
    assert {row.count("\t") for row in rows} == {lines[0].count("\t")} == {4}
    listed = {row.split("\t")[0] for row in rows}
    assert len(listed) > 10 and f"{sum(row.split(chr(9))[1] == 'yes' for row in rows)} cells" in summary
    shown = in_a_terminal("plan", env=site)
    assert listed <= names(shown)
    for reason in (row.split("\t")[3] for row in rows):
        assert all(word in shown.split() for word in reason.split()), reason


def test_doctor_shows_whole_fixes(site: dict[str, str]) -> None:
    """A command to be copied stands in one line of a pipe; in a terminal no word of it is cut."""
    site["PREFECT_API_URL"] = "http://127.0.0.1:9/api"
    fixes = [line for line in piped("doctor", env=site).splitlines() if line.startswith("to fix ")]
    assert any("to fix Prefect:" in line and "PREFECT_API_URL" in line for line in fixes)
    words = in_a_terminal("doctor", env=site).split()
    for line in fixes:
        assert not [word for word in line.split() if word not in words]


@pytest.mark.parametrize("words", [("history",), ("compare", "c1", "c2"), ("report", "c2")], ids=" ".join)
def test_long_name_is_whole(words: tuple[str, ...], site: dict[str, str]) -> None:
    text, shown = piped(*words, env=site), in_a_terminal(*words, env=site)
    for output in (text, shown):
        assert NAME in output and "…" not in output and "\x1b" not in output
    assert not set("│┃╭─━") & set(text)
    assert any((NAME in line and "20.00" in line) or "-50.0%" in line for line in text.splitlines())
    if words[0] == "report":
        assert text.startswith(Path(site["SERVEGRID_RESULTS"], "c2", "report.md").read_text())


class Terminal(io.StringIO):
    """Text that says it is a terminal: what is laid out here is looked at, not how a terminal shows it."""

    def isatty(self) -> bool:
        return True


@pytest.fixture
def terminal(monkeypatch: pytest.MonkeyPatch) -> Terminal:
    file = Terminal()
    monkeypatch.setattr(console, "_file", file)
    return file


HEAD = ("cell", "runs", "why not")
ROWS = [
    ("a-name", "no", "its library is not installed: see docs/formats.md"),
    ("another-longer-name", "yes", ""),
]


@pytest.mark.parametrize("width", [*range(20, 100, 3), 200])
def test_no_word_is_split_at_any_width(
    width: int, terminal: Terminal, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(console, "width", width)
    print_table(HEAD, ROWS)
    lines = terminal.getvalue().splitlines()
    words = re.sub("[┃│]", " ", terminal.getvalue()).split()
    for row in ROWS:
        assert all(word in words for text in row for word in text.split())
    assert max(map(len, lines)) <= max(width, len("    docs/formats.md"))
    assert ("┃" in terminal.getvalue()) == (fit([HEAD, *ROWS], width) is not None)


def test_wide_terminal_has_one_line_a_row(terminal: Terminal, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(console, "width", 200)
    print_table(HEAD, ROWS)
    assert sum(row[0] in line for row in ROWS for line in terminal.getvalue().splitlines()) == len(ROWS)
    assert fit([HEAD, *ROWS], 60) and not fit([HEAD, *ROWS], 30)


def test_tabs_and_newlines_in_a_value_do_not_break_a_piped_row(capsys: pytest.CaptureFixture[str]) -> None:
    print_table(("a", "b"), [("x\ty", "[red]two\nlines[/] :smile: \x1b[2J")])
    assert capsys.readouterr().out == "a\tb\nx\\ty\t[red]two lines[/] :smile: \\x1b[2J\n"


def test_table_of_a_document_keeps_its_cells(terminal: Terminal, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(console, "width", 30)
    print_markdown(f"# Title\n\n| cell | a | b |\n| --- | --- | --- |\n| {NAME} |  | x \\| y |\n\nend\n")
    lines = [line.rstrip() for line in terminal.getvalue().splitlines()]
    assert NAME in lines and "  b: x | y" in lines and "end" in lines
    assert not any(line.startswith("  a:") for line in lines)
