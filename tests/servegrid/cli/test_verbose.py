"""`servegrid --verbose`: where it applies; test_proc_running.py has what it shows of a program."""

from __future__ import annotations

import logging
import subprocess
import sys
from pathlib import Path

import pytest

from servegrid.servers.launch import Start


def test_a_server_logs_verbosely_only_where_its_output_is_shown(caplog: pytest.LogCaptureFixture) -> None:
    start = Start({"http": 1, "grpc": 2, "metrics": 3}, "prefix_")
    assert not [option for option in start.options(Path("r")) if "verbose" in option]
    with caplog.at_level(logging.DEBUG, "servegrid_output"):
        assert "--log-verbose=1" in start.options(Path("r"))


def test_verbose_is_refused_where_workers_print_the_output(tmp_path: Path) -> None:
    done = subprocess.run(
        [
            sys.executable,
            "-c",
            "from servegrid.cli.main import main; main()",
            "--verbose",
            "sweep",
            "--workers",
        ],
        env={"PREFECT_API_URL": "http://127.0.0.1:9/api", "SERVEGRID_HOME": str(tmp_path), "PATH": "/usr/bin"}
        | {"PYTHONPATH": str(Path(__file__).parents[3])},
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 2 and "--verbose" in done.stderr and "--workers" in done.stderr
