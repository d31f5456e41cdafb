"""`--help` and `--version`: what they show, and that they load nothing heavy."""

from __future__ import annotations

import importlib.metadata
import os
import re
import subprocess
import sys
from typing import Any

import pytest
import typer
from typer.testing import CliRunner

from servegrid.cli.main import app
from servegrid.plan.options import SweepOptions, _flag, panel
from servegrid.plan.selection import Panel

HEAVY = ("prefect", "polars", "torch", "tensorflow", "scipy", "altair", "tritonclient", "numpy", "yaml")
LOADED = f"""
import sys
from servegrid.cli.main import main
try:
    main()
finally:
    print("loaded:", *sorted(set({HEAVY!r}) & set(sys.modules)), file=sys.stderr)
"""


def commands(group: Any, *before: str) -> list[tuple[str, ...]]:
    """The words of every command, and of the groups that they belong to."""
    found = [before]
    for name, command in getattr(group, "commands", {}).items():
        found += commands(command, *before, name)
    return found


COMMANDS = commands(typer.main.get_command(app))


def of_a_process(*words: str) -> subprocess.CompletedProcess[str]:
    """Where there is no site: neither help nor version needs one."""
    return subprocess.run(
        [sys.executable, "-c", LOADED, *words],
        env=os.environ | {"SERVEGRID_ROOT": "/nonexistent"},
        capture_output=True,
        text=True,
        timeout=120,
    )


def test_every_command_is_found() -> None:
    assert {(), ("sweep",), ("why",), ("compare",), ("pools", "create")} < set(COMMANDS)


@pytest.mark.parametrize("words", COMMANDS, ids=" ".join)
def test_help_loads_nothing_heavy(words: tuple[str, ...]) -> None:
    done = of_a_process(*words, "--help")
    assert (done.returncode, done.stderr) == (0, "loaded:\n")
    assert "Usage:" in done.stdout


def test_version_loads_nothing_heavy() -> None:
    done = of_a_process("--version")
    version = importlib.metadata.version("servegrid")
    assert (done.returncode, done.stdout, done.stderr) == (0, f"servegrid {version}\n", "loaded:\n")


@pytest.mark.parametrize("command", ["plan", "sweep"])
def test_options_are_shown_in_the_group_of_their_field(command: str) -> None:
    text = CliRunner(env={"COLUMNS": "200", "NO_COLOR": "1"}).invoke(app, [command, "--help"]).output
    parts = re.split(r"^╭─ (.+?) ─+╮$", text, flags=re.MULTILINE)
    panels = dict(zip(parts[1::2], parts[2::2], strict=True))
    assert [name for name in panels if name != "Options"] == [entry.value for entry in Panel]
    for name in SweepOptions.model_fields:
        shown = [title for title, body in panels.items() if re.search(rf"^│ {_flag(name)} ", body, re.M)]
        assert shown == [panel(name).value]
