"""A cell, a recorder of its rows in the test's folder, and the command run in this process."""

from __future__ import annotations

import logging
import signal
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from flows.cli import Progress, main
from flows.cli_table import console
from flows.options import SweepOptions
from flows.record import Recorder
from tasks.core.environment import host
from tasks.core.matrix import expand
from tasks.core.plugins import load_model, load_profile
from tasks.core.releases import load_releases
from tasks.core.results import Writer
from tasks.core.selection import Selection
from tasks.core.site import ROOT
from tasks.core.values import Cell


@pytest.fixture(scope="session")
def cell() -> Cell:
    spec = load_model(ROOT / "models", "bert_large_qa").spec
    profile = load_profile(ROOT / "gpu_profiles", "cpu")
    return expand(
        spec,
        "tiny",
        profile,
        generator="client",
        triton_release="24.10",
        releases=load_releases(),
        selection=Selection(),
    ).cells[0]


@pytest.fixture
def recorder(tmp_path: Path) -> Recorder:
    return Recorder(Writer(tmp_path), "c1", host(), {"torch": "2.13"}, SweepOptions(), run="r1")


@pytest.fixture
def home(tmp_path: Path) -> Path:
    return tmp_path / "site"


@pytest.fixture
def servegrid(
    home: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Iterator[Callable[..., tuple[int, str]]]:
    """`servegrid WORDS...` with folders of its own that are not there yet: exit code, and what it printed."""
    for name in ("HOME", "RESULTS", "SOURCES"):
        monkeypatch.setenv(f"SERVEGRID_{name}", str(home / name.lower()))
    monkeypatch.setenv("PREFECT_API_URL", "http://127.0.0.1:9/api")  # nobody is there
    for name in ("PREFECT_LOGGING_EXTRA_LOGGERS", "PREFECT_LOGGING_HANDLERS_CONSOLE_LEVEL"):
        monkeypatch.setenv(name, "")  # what the command sets is taken back, too
    monkeypatch.setenv("PREFECT_CLIENT_MAX_RETRIES", "0")
    monkeypatch.chdir(home.parent)  # from which no path of these leads to a file
    monkeypatch.setenv("COLUMNS", "2000")
    monkeypatch.setattr(console, "width", 2000)  # made when it was imported
    logger, handler = logging.getLogger("servegrid"), signal.getsignal(signal.SIGTERM)

    def run(*words: str) -> tuple[int, str]:
        monkeypatch.setattr(sys, "argv", ["servegrid", *words])
        with pytest.raises(SystemExit) as ended:
            main()
        captured = capsys.readouterr()
        return int(ended.value.code or 0), captured.out + captured.err

    yield run
    signal.signal(signal.SIGTERM, handler)
    logger.handlers = [h for h in logger.handlers if not isinstance(h, Progress)]
