"""The table of faults: docs/reliability.md, made by the tests that attack something on purpose.

Such a test bears `@pytest.mark.fault(part, promise)`: the part of the table, and what is promised. Its row is
named by the parameter that it is run with, or by the mark's `what`. The fixture `happened` takes what the
test saw. `make reliability` runs them all and writes the document.

Every test of a fault must leave nothing behind: no process, no shared memory, no temporary file.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import re
import runpy
import shutil
import subprocess
import tempfile
import time
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from xdist.scheduler import LoadScopeScheduling

PAGE = Path(__file__).parent / "docs" / "make_reliability.py"
RUN = "SERVEGRID_TEST"
"""Names, in the environment of every process that a test of a fault starts, that test."""
CACHES = ("torchinductor_",)
"""Files that PyTorch keeps there for all its processes."""
KEPT = "faults/rows"
"""In pytest's cache: the result of each test's last run."""


PREPARED = {"disk", "small_shm", "private_shm", "jumping_clock", "engine", "grid", "browser"}
"""Fixtures that need root, a compiler, docker, PostgreSQL or Chromium: `make check` runs their tests."""


class Fault(NamedTuple):
    """A row of the table without its last column."""

    part: str
    what: str
    promise: str


FAULTS = pytest.StashKey[dict[str, list[Fault]]]()
"""The faults of every collected file of tests."""


def fault_of(item: pytest.Item) -> Fault | None:
    """The fault that a test is about; its row is named by its parameters, the mark's `what`, or both."""
    mark = item.get_closest_marker("fault")
    if mark is None:
        return None
    part, promise = mark.args
    names = [item.callspec.id] if hasattr(item, "callspec") else []
    return Fault(part, " ".join([*filter(None, [mark.kwargs.get("what")]), *names]), promise)


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--reliability", type=Path, metavar="FILE", help="write the table of faults there")
    parser.addini("shm", "the folder whose files are shared memory", default="/dev/shm")
    parser.addini(
        "leave_s", "seconds in which the processes and memory of a test of a fault must be gone", default="5"
    )


@pytest.hookimpl(tryfirst=True)  # before any is deselected
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    found: dict[str, list[Fault]] = {}
    for item in items:
        found.setdefault(str(item.path), []).extend(filter(None, [fault_of(item)]))
        if PREPARED & set(getattr(item, "fixturenames", ())):
            item.add_marker("check")
    config.stash[FAULTS] = found


@pytest.fixture
def faults(request: pytest.FixtureRequest) -> dict[str, list[Fault]]:
    """The faults of every collected file, whether they are run or not."""
    return request.config.stash[FAULTS]


class Happened:
    """Takes what the test of a fault saw, and how many of the planned rows a campaign kept."""

    def __init__(self, item: pytest.Item) -> None:
        self._item = item

    def __call__(self, text: object) -> None:
        self._item.user_properties.append(("happened", str(text)))

    def rows(self, planned: int, kept: int) -> None:
        self._item.user_properties.append(("rows", f"{planned} {kept}"))
        assert kept == planned


@pytest.fixture
def happened(request: pytest.FixtureRequest) -> Happened:
    return Happened(request.node)


@pytest.fixture(autouse=True)
def _nothing_left(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """A test of a fault fails if it leaves a process, shared memory or a temporary file."""
    fault = fault_of(request.node)
    if fault is None:
        yield
        return
    item, temporary, run = request.node, tmp_path_factory.mktemp("tmp"), uuid.uuid4().hex
    item.user_properties += [(name, getattr(fault, name)) for name in Fault._fields]
    memory = Path(request.config.getini("shm"))
    shared = set(memory.iterdir())
    running = tmp_path_factory.getbasetemp().parent / "running"
    with pytest.MonkeyPatch.context() as patch, _marked(running / run):
        patch.setenv(RUN, run)
        patch.setenv("TMPDIR", str(temporary))
        patch.setattr(tempfile, "tempdir", str(temporary))
        yield
    deadline = time.monotonic() + float(request.config.getini("leave_s"))
    while any((left := _left(run, memory, shared, temporary)).values()) and time.monotonic() < deadline:
        time.sleep(0.05)
    if left["leaks"]:
        _wait_for_others(running)
        left["leaks"] = [path for path in left["leaks"] if path.exists()]
    item.user_properties += [(name, str(len(found))) for name, found in left.items()]
    assert not any(left.values()), left


@contextlib.contextmanager
def _marked(path: Path) -> Iterator[None]:
    """Hold a lock on the file `path`, so that tests of other workers of pytest know that this one runs."""
    path.parent.mkdir(exist_ok=True)
    with path.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield
    path.unlink()


def _wait_for_others(running: Path) -> None:
    """Wait for the tests of faults that other workers of pytest run now. One of them may have killed a
    campaign whose shared memory it removes later; that memory is not this test's."""
    for path in running.iterdir():
        with contextlib.suppress(FileNotFoundError), path.open() as file:
            fcntl.flock(file, fcntl.LOCK_EX)


def _left(run: str, memory: Path, shared: set[Path], temporary: Path) -> dict[str, list[Any]]:
    """What a test has left behind so far: processes, and new shared memory and temporary files."""
    files = [path for path in temporary.iterdir() if not path.name.startswith(CACHES)]
    return {"orphans": [*_processes(run)], "leaks": [*_unused(memory, shared), *files]}


class Disk:
    """A file system of 8 MB that a test may fill."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._filler = path / "filler"

    def fill(self) -> None:
        """Leave no byte free."""
        with self._filler.open("ab", buffering=0) as file, contextlib.suppress(OSError):
            while file.write(b"x" * 4096):
                pass

    def free(self) -> None:
        self._filler.unlink()

    def read_only(self) -> None:
        subprocess.run(["mount", "-o", "remount,ro", self.path], check=True)


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Disk]:
    """A small disk, mounted for as long as the test runs."""
    path = tmp_path / "disk"
    path.mkdir()
    words = ["mount", "-t", "tmpfs", "-o", "size=8m", "none", str(path)]
    if os.geteuid() != 0 or subprocess.run(words, capture_output=True).returncode != 0:
        pytest.skip("a small disk of one's own needs root, and to be let mount")
    yield Disk(path)
    subprocess.run(["umount", path], check=True)


@pytest.fixture(scope="session")
def small_shm() -> tuple[str, ...]:
    """The words that start a program with a /dev/shm of its own, of 64 kB."""
    words = ("unshare", "--mount", "sh", "-c", 'mount -t tmpfs -o size=64k none /dev/shm && exec "$@"', "sh")
    if os.geteuid() != 0 or subprocess.run([*words, "true"], capture_output=True).returncode != 0:
        pytest.skip("a /dev/shm of one's own needs root, and to be let mount")
    return words


JUMPS = """
#define _GNU_SOURCE
#include <dlfcn.h>
#include <sys/time.h>
#include <time.h>
int clock_gettime(clockid_t id, struct timespec *found) {
    static int (*real)(clockid_t, struct timespec *);
    if (!real) real = dlsym(RTLD_NEXT, "clock_gettime");
    int code = real(id, found);
    if (id != CLOCK_REALTIME) return code;
    struct timespec runs;
    real(CLOCK_MONOTONIC, &runs);
    found->tv_sec += runs.tv_sec % 2 ? 86400 : -86400;
    return code;
}
int gettimeofday(struct timeval *found, void *zone) {
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    found->tv_sec = now.tv_sec;
    found->tv_usec = now.tv_nsec / 1000;
    return 0;
}
time_t time(time_t *found) {
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    if (found) *found = now.tv_sec;
    return now.tv_sec;
}
"""


@pytest.fixture(scope="session")
def jumping_clock(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """The environment of a program in which the time of day jumps by two days every second."""
    if not shutil.which("cc"):
        pytest.skip("a C compiler makes the clock that jumps (Debian: gcc)")
    folder = tmp_path_factory.mktemp("clock")
    (folder / "jumps.c").write_text(JUMPS)
    words = ["cc", "-shared", "-fPIC", "-o", str(folder / "jumps.so"), str(folder / "jumps.c"), "-ldl"]
    subprocess.run(words, check=True)
    return {"LD_PRELOAD": str(folder / "jumps.so")}


def _processes(run: str) -> list[str]:
    """The live processes that the test with this number started, itself or by others. Python's own tracker of
    shared memory is none: this process starts it once, and it ends with this process."""
    found, wanted = [], f"{RUN}={run}".encode()
    for path in Path("/proc").glob("[0-9]*/environ"):
        try:
            line = (path.parent / "cmdline").read_text().replace("\0", " ")
            ours = wanted in path.read_bytes().split(b"\0") and path.parent.name != str(os.getpid())
        except OSError:  # it has ended, or is another user's
            continue
        if ours and "multiprocessing.resource_tracker" not in line:
            found.append(line)
    return found


def _unused(memory: Path, before: set[Path]) -> list[Path]:
    """New shared memory of ours, or of a server of ours, that no process has mapped. That of another user is
    none: who has mapped it, we may not see."""
    new = [path for path in set(memory.iterdir()) - before if path.name.startswith("servegrid")]
    new = [path for path in new if os.access(path, os.W_OK)]
    if not new:
        return []
    mapped = set()
    for maps in Path("/proc").glob("[0-9]*/maps"):
        try:
            mapped |= set(re.findall(rf"{memory}/\S+", maps.read_text()))
        except OSError:
            continue
    # A program that has ended meanwhile removed its memory; it is no longer mapped and was not left behind.
    return [path for path in new if str(path) not in mapped and path.exists()]


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    _reports.setdefault(report.nodeid, []).append(report)


_reports: dict[str, list[pytest.TestReport]] = {}


def pytest_terminal_summary(terminalreporter: Any, config: pytest.Config) -> None:
    """Write the page. A test that was not run keeps its row of the run before, while it is there."""
    target = config.getoption("--reliability")
    if not target or hasattr(config, "workerinput"):
        return
    found = {name: row for name, reports in _reports.items() if "part" in (row := _values(reports))}
    before: dict[str, dict[str, str]] = config.cache.get(KEPT, {}) if config.cache else {}
    names = set(_defined(config.rootpath))
    kept = {name: row for name, row in (before | found).items() if name.partition("[")[0] in names}
    if config.cache:
        config.cache.set(KEPT, kept)
    document = runpy.run_path(str(PAGE))["document"]
    target.write_text(document(kept.values()), encoding="utf-8")
    terminalreporter.write_line(f"table of faults: {target}")


def _values(reports: list[pytest.TestReport]) -> dict[str, str]:
    """The joined values of one test's reports: setup, call and teardown."""
    found = {str(name): str(value) for name, value in reports[-1].user_properties}  # the last one has all
    for report in reports:
        if report.failed:
            found["failed"] = "yes"
        elif report.skipped and isinstance(report.longrepr, tuple):
            found["skipped"] = str(report.longrepr[-1])
    return found


def _defined(root: Path) -> Iterator[str]:
    """Files and names of all tests."""
    for path in (root / "tests").rglob("test_*.py"):
        for name in re.findall(r"^def (test_\w+)", path.read_text(encoding="utf-8"), flags=re.MULTILINE):
            yield f"{path.relative_to(root).as_posix()}::{name}"


class ByFolder(LoadScopeScheduling):  # type: ignore[misc]  # it has no types
    """With several workers (`make test` has two): all that measures the CPU goes to one, for a device is
    measured by one at a time; campaigns of Prefect's workers, on profiles of their own, to one; of the rest
    each folder to one, so that what its tests share is made once."""

    def _split_scope(self, nodeid: str) -> str:
        folders = nodeid.split("::")[0].split("/")[1:-1]
        if "workers" in folders:
            return "campaigns"
        return "measuring" if {"e2e", "loadgen"} & set(folders) else "/".join(folders[:2])


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> ByFolder:
    return ByFolder(config, log)
