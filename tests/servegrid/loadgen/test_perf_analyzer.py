"""perf_analyzer's command on this host, and its results as it wrote them (recorded in `data/`)."""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import threading
from collections.abc import Callable
from importlib.metadata import distributions
from pathlib import Path

import pytest

from servegrid.domain.errors import StepError
from servegrid.host import device_locks
from servegrid.loadgen.base import Measurement, Point, Window
from servegrid.loadgen.perf_analyzer import install, trial
from servegrid.loadgen.perf_analyzer import run as perf_analyzer
from servegrid.store.site import Site

DATA = Path(__file__).parent / "data"
"""Three windows of a hosted identity at batch 4, concurrency 2; runs that gave up after 2 and 4."""
RECORDED = Point(batch=4, concurrency=2, request_count=50, shared_memory="system", warm_up=True)


@pytest.fixture
def table(tmp_path: Path) -> Path:
    return shutil.copy(DATA / "whole.csv", tmp_path / "table.csv")


@pytest.mark.parametrize(
    ("shared_memory", "batch", "inputs", "distinct"),
    [
        ("cuda", 8, 1, 64),
        ("cuda", 4096, 29, 33),
        ("cuda", 131072, 29, 8),
        ("system", 131072, 29, 64),
        ("none", 131072, 29, 64),
    ],
)
def test_a_large_batch_on_the_card_is_made_of_fewer_samples(
    shared_memory: str, batch: int, inputs: int, distinct: int
) -> None:
    point = RECORDED.model_copy(update={"shared_memory": shared_memory, "batch": batch})
    assert perf_analyzer.distinct_samples(point, inputs) == distinct


def recorded(name: str) -> str:
    return (DATA / f"{name}.log").read_text()


def test_a_whole_result_is_read_in_milliseconds(table: Path) -> None:
    found = perf_analyzer.parse(RECORDED, recorded("whole"), table)
    assert found == Measurement(
        throughput=10153.9,
        client_send_ms=0.003,
        network_server_send_recv_ms=0.212,
        server_queue_ms=0.208,
        server_compute_input_ms=0.015,
        server_compute_infer_ms=0.228,
        server_compute_output_ms=0.109,
        client_recv_ms=0.001,
        p50_ms=0.755,
        p90_ms=0.976,
        p95_ms=1.036,
        p99_ms=1.175,
        avg_ms=0.779,
        request_count=9229,
        windows=(
            Window(throughput=10574.3, avg_ms=0.748),
            Window(throughput=10189.4, avg_ms=0.775),
            Window(throughput=9705.53, avg_ms=0.815),
        ),
        generator="perf_analyzer",
        generator_version=perf_analyzer.VERSION,
    )
    assert found.stable


def test_a_missing_table_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(StepError, match=r"batch 4\b.*concurrency 2\b") as caught:
        perf_analyzer.parse(RECORDED, recorded("whole"), tmp_path / "table.csv")
    assert caught.value.log == str(tmp_path / "output.log")


@pytest.mark.parametrize("run", ["two_windows", "unstable"])
def test_a_run_that_gave_up_is_an_error(tmp_path: Path, run: str) -> None:
    with pytest.raises(StepError, match=r"batch 4\b.*concurrency 2\b"):
        perf_analyzer.parse(RECORDED, recorded(run), tmp_path / "table.csv")


def test_a_table_of_another_concurrency_is_an_error(table: Path) -> None:
    other = RECORDED.model_copy(update={"concurrency": 8})
    with pytest.raises(StepError, match=r"batch 4\b.*concurrency 8\b"):
        perf_analyzer.parse(other, recorded("whole"), table)


def test_a_table_that_breaks_off_is_an_error(table: Path) -> None:
    text = table.read_text()
    for length in range(len(text.strip()) - len("779,4,767"), -1, -7):
        table.write_text(text[:length])
        with pytest.raises(StepError):
            perf_analyzer.parse(RECORDED, recorded("whole"), table)


def test_fewer_than_three_windows_are_an_error(table: Path) -> None:
    lines = recorded("whole").splitlines(keepends=True)
    output = "".join(line for line in lines if "Pass [1]" not in line)
    with pytest.raises(StepError, match="2 windows"):
        perf_analyzer.parse(RECORDED, output, table)


@pytest.mark.parametrize("column", ["Inferences/Second", *perf_analyzer.COLUMNS])
@pytest.mark.parametrize("value", ["nan", "-nan", "inf", ""])
def test_a_column_without_a_number_is_an_error(table: Path, column: str, value: str) -> None:
    names, values = (line.split(",") for line in table.read_text().split("\n")[:2])
    values[names.index(column)] = value
    table.write_text(f"{','.join(names)}\n{','.join(values)}\n")
    with pytest.raises(StepError, match=r"windows|batch 4\b"):
        perf_analyzer.parse(RECORDED, recorded("whole"), table)


def test_no_throughput_is_an_error(table: Path) -> None:
    table.write_text(table.read_text().replace("10153.9", "0"))
    with pytest.raises(StepError, match="0 inferences/s"):
        perf_analyzer.parse(RECORDED, recorded("whole"), table)


def test_the_regions_of_a_run_on_another_card_stay(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A run that is killed removes regions by their names, which those of a neighbour's run bear, too."""
    monkeypatch.setattr(device_locks, "LOCKS", tmp_path / "locks")
    tensor = f"servegrid-test-{os.getpid()}"
    warm = perf_analyzer.Warm(request_ms=1.0, inputs=(tensor,), outputs={})
    region = Path("/dev/shm") / f"{tensor}_0_0"
    region.touch()

    def killed(point: Point) -> None:
        with (
            contextlib.suppress(KeyboardInterrupt),
            perf_analyzer.turn(point),
            perf_analyzer._regions(point, warm),
        ):
            raise KeyboardInterrupt

    run = threading.Thread(target=killed, args=(RECORDED,))
    try:
        with perf_analyzer.turn(RECORDED), perf_analyzer._regions(RECORDED, warm):  # the neighbour's
            run.start()
            killed(RECORDED.model_copy(update={"shared_memory": "none"}))  # waits for nobody
            run.join(0.3)
            assert run.is_alive()
            assert region.exists()
        run.join(10)
        assert not run.is_alive()
        assert not region.exists()
    finally:
        region.unlink(missing_ok=True)


def test_the_command_runs_on_this_host(site: Site) -> None:
    if reason := perf_analyzer.problem(site):
        pytest.skip(reason)
    command = install.command(site)
    assert command is not None
    ran = subprocess.run([*command, "--version"], check=True, capture_output=True, text=True)
    assert "Perf Analyzer Version" in ran.stdout + ran.stderr
    wheel = install._folder(site) / "wheel"
    assert [d.version for d in distributions(path=[str(wheel)])] == [perf_analyzer.VERSION]


def test_if_it_is_not_installed_the_problem_names_the_command(site: Site, tmp_path: Path) -> None:
    empty = site.model_copy(update={"home": tmp_path})
    assert install.command(empty) is None
    assert "--install-perf-analyzer" in str(perf_analyzer.problem(empty))


def fail() -> None:
    raise StepError("no route\nto the server")


@pytest.mark.parametrize("measure", [lambda: None, fail])
def test_it_is_used_only_where_a_trial_measurement_passed(
    measure: Callable[[], None], site: Site, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if reason := perf_analyzer.problem(site):
        pytest.skip(reason)
    own = site.model_copy(update={"home": tmp_path})

    def copy(folder: Path) -> None:
        """What pip and apt would bring: they need a network."""
        shutil.copytree(site.home / "perf-analyzer", folder, dirs_exist_ok=True)

    monkeypatch.setattr(install, "_download", copy)
    install.install(own, measure)
    problem = perf_analyzer.problem(own)
    if measure is fail:
        assert problem and "no route" in problem and "--install-perf-analyzer" in problem
        assert len(problem.splitlines()) == 1
    else:
        assert problem is None


def test_the_trial_measures_on_the_embedded_server(site: Site) -> None:
    if reason := perf_analyzer.problem(site):
        pytest.skip(reason)
    trial.measure(site)


def test_the_trial_fails_where_cuda_has_no_runtime(
    site: Site, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if reason := perf_analyzer.problem(site):
        pytest.skip(reason)
    own = site.model_copy(update={"home": tmp_path})
    for path in site.home.iterdir():
        (tmp_path / path.name).symlink_to(path)
    (tmp_path / "perf-analyzer").unlink()
    shutil.copytree(site.home / "perf-analyzer", tmp_path / "perf-analyzer")
    monkeypatch.delenv("LD_LIBRARY_PATH", raising=False)
    (tmp_path / "perf-analyzer" / "lib" / "libcudart.so").write_text("no library")
    with pytest.raises(StepError, match=r"libcudart\.so"):
        trial.measure(own)
