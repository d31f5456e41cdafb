"""The command run in this process."""

from __future__ import annotations

import logging
import signal
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from servegrid.cli.main import main
from servegrid.cli.progress import Progress
from servegrid.cli.table import console


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
