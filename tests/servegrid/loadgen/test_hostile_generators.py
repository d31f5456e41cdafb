"""Load generators that are missing, hang or write nonsense, and clocks that jump while one measures."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from servegrid.domain.errors import StepError
from servegrid.host import proc
from servegrid.loadgen import GENERATORS
from servegrid.loadgen.base import Point, Target
from servegrid.loadgen.perf_analyzer import install
from servegrid.loadgen.perf_analyzer import run as perf_analyzer
from servegrid.store.site import Site

POINT = Point(batch=1, concurrency=2, request_count=20, shared_memory="system", warm_up=True)


@pytest.fixture
def target(server: Any, identity: str, samples: Path, tmp_path: Path) -> Target:
    return Target(endpoint=server.endpoint(identity), samples=samples, logs=tmp_path / "logs", name="it")


@pytest.fixture
def with_script(site: Site, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], Site]:
    """A site whose perf_analyzer is this shell script; `$table` is the file that is to hold its results."""
    home = site.model_copy(update={"home": tmp_path / "home"})
    monkeypatch.setattr(install, "_glibc", lambda: install.NEEDS_GLIBC)

    def make(script: str) -> Site:
        binary = install._folder(home) / install.BINARY
        binary.parent.mkdir(parents=True)
        table = 'while [ "$1" != -f ]; do shift; done; table="$2"'
        binary.write_text(f"#!/bin/sh\n{table}\n{script}\n")
        binary.chmod(0o755)
        return home

    return make


NONSENSE = {
    "prints nothing and ends well": ("exit 0", r"batch 1\b.*concurrency 2\b"),
    "prints nonsense": ("head -c 100000 /dev/urandom | tee $table", r"batch 1\b.*concurrency 2\b"),
    "prints without end": ("yes Pass", r"\b2 s\b"),
    "writes an empty table": (": > $table; echo 'Request count: 5'", r"batch 1\b"),
    "writes another point": (
        "echo 'Concurrency\n9' > $table; echo 'Request count: 5'",
        r"batch 1\b",
    ),
    "crashes": ("echo 'no route' >&2; kill -SEGV $$", r"\b139\b"),
    "is killed": ("kill -KILL $$", "killed"),
    "fails": ("echo 'Failed to init' >&2; exit 99", r"(?s)\b99\b.*Failed to init"),
    "hangs, and heeds no SIGTERM": ("trap '' TERM; sleep 60 & wait; sleep 60", r"\b2 s\b"),
}


@pytest.mark.parametrize("kind", NONSENSE)
@pytest.mark.fault(
    "Load generators", "the cell ends `error` with the log; no figure is made up", what="perf_analyzer"
)
def test_hostile_perf_analyzer(
    kind: str, with_script: Any, target: Target, monkeypatch: pytest.MonkeyPatch, happened: Any
) -> None:
    script, message = NONSENSE[kind]
    monkeypatch.setattr(perf_analyzer, "timeout_s", lambda point, target: 2.0)
    begun = time.monotonic()
    with pytest.raises(StepError, match=message) as caught:
        perf_analyzer.measure(POINT, target, with_script(script))
    assert time.monotonic() - begun < 30
    assert Path(caught.value.log).is_file()
    happened(str(caught.value).splitlines()[0])


@pytest.mark.fault(
    "Load generators",
    "an error before any work, with the command that installs it",
    what="perf_analyzer is missing",
)
def test_missing_perf_analyzer(site: Site, tmp_path: Path, happened: Any) -> None:
    problem = GENERATORS["perf_analyzer"].problem(site.model_copy(update={"home": tmp_path}))
    assert problem and "--install-perf-analyzer" in problem
    happened(problem)


@pytest.mark.fault("Clocks", "figures as ever", what="set by days, every second, while the client measures")
def test_client_measures_though_the_clock_jumps(
    jumping_clock: dict[str, str], target: Target, site: Site, monkeypatch: pytest.MonkeyPatch, happened: Any
) -> None:
    monkeypatch.setenv("LD_PRELOAD", jumping_clock["LD_PRELOAD"])  # of the processes that it starts
    found = GENERATORS["client"].measure(POINT, target, site)
    assert found.throughput * found.avg_ms / 1e3 == pytest.approx(2, rel=0.3), "Little's law"
    assert 0 < found.p50_ms <= found.p99_ms < 5000
    happened(f"throughput x latency is {found.throughput * found.avg_ms / 1e3:.2f} requests, of 2 in flight")


REGION = """
from contextlib import ExitStack
from servegrid.loadgen.client.regions import region
with ExitStack() as stack:
    region(stack, None, "system", "servegrid_none", 10**6, [])
"""


@pytest.mark.fault(
    "Shared memory",
    "an error with the option to use; the client is not killed",
    what="/dev/shm is full for a client",
)
def test_a_client_without_room_for_shared_memory(small_shm: Any, tmp_path: Path, happened: Any) -> None:
    with pytest.raises(StepError) as caught:
        proc.run([*small_shm, sys.executable, "-c", REGION], log_path=tmp_path / "log", timeout_s=60)
    message = str(caught.value).splitlines()[-1]
    assert "/dev/shm has 0.1 MB free, and 1.0 MB are needed" in message
    assert "--shared-memory none" in message
    happened(message)
