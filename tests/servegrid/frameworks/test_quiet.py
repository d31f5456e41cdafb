"""Warnings in a step: known ones of other libraries are not shown, any other is."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest

from servegrid.frameworks import quiet
from servegrid.store.build import HIDDEN, Workplace, run_step
from servegrid.store.site import Site

PREPARE = """
import builtins, logging, warnings

def prepare(variant, output, sources, parameters):
    for category, module, start in {warnings!r}:
        for name in (module, "mine"):
            message = f"{{start}}, from {{name}}"
            warnings.warn_explicit(message, getattr(builtins, category), "file.py", 1, module=name)
    for logger, known in {logged!r}:
        for name in (logger, "mine"):
            logging.getLogger(name).warning("%s, logged by %s", known, name)
    warnings.warn("my weights are old", stacklevel=1)
    print("oneDNN custom operations are on, I think")
    return {{}}
"""


@pytest.fixture
def lines(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> list[str]:
    """The output of a step that warns in every known way, in a library's name and in its own."""
    names = ("home", "models", "profiles", "sources", "results")
    site = Site.model_validate({name: tmp_path / name for name in names})
    (folder := site.models / "toy").mkdir(parents=True)
    known = [(category.__name__, module, start) for category, module, start in quiet.WARNINGS]
    (folder / "prepare.py").write_text(PREPARE.format(warnings=known, logged=quiet.LOGGED))
    (tmp_path / "out").mkdir()
    at = Workplace(
        site=site, plugin=folder, logs=tmp_path / "logs", profile="test-quiet", cell="toy", timeout_s=60
    )
    with caplog.at_level(logging.INFO, "servegrid"):
        run_step(
            "prepare",
            fields={"variant": "tiny", "parameters": {}},
            inputs={},
            output=tmp_path / "out",
            at=at,
        )
    return [record.getMessage() for record in caplog.records]


def test_known_warnings_are_not_shown(lines: list[str]) -> None:
    shown = "\n".join(lines)
    for _, module, _ in quiet.WARNINGS:
        assert f"from {module}" not in shown
    for logger, _ in quiet.LOGGED:
        assert f"logged by {logger}" not in shown


def test_all_others_are(lines: list[str]) -> None:
    shown = "\n".join(lines)
    for _, _, start in quiet.WARNINGS:
        assert f"{start}, from mine" in shown
    for _, known in quiet.LOGGED:
        assert f"{known}, logged by mine" in shown
    for mine in ("my weights are old", "oneDNN custom operations are on, I think"):
        assert mine in shown


@pytest.mark.parametrize(
    "line",
    [
        "WARNING: All log messages before absl::InitializeLog() is called are written to STDERR",
        "I0000 00:00:1796088744.918626   22736 port.cc:153] oneDNN custom operations are on. You may see",
    ],
)
def test_lines_that_tensorflow_writes_when_it_is_imported_are_known(line: str) -> None:
    assert HIDDEN.match(line)
