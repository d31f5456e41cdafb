"""Both load generators against a real server: what they measure, and what is left when something dies."""

from __future__ import annotations

import math
import os
import subprocess
import sys
import time
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import psutil
import pytest

from servegrid.campaign.results import MEASURED
from servegrid.domain.errors import StepError
from servegrid.domain.values import Generator
from servegrid.loadgen import GENERATORS
from servegrid.loadgen.base import STABLE_WINDOWS, Measurement, Point, Target
from servegrid.store.site import Site

POINT = Point(batch=2, concurrency=3, request_count=50, shared_memory="system", warm_up=True)
COMPONENTS = (
    "client_send_ms",
    "network_server_send_recv_ms",
    "server_queue_ms",
    "server_compute_input_ms",
    "server_compute_infer_ms",
    "server_compute_output_ms",
    "client_recv_ms",
)
SHM = Path("/dev/shm")


@pytest.fixture(scope="module", params=list(GENERATORS))
def generator(request: pytest.FixtureRequest, site: Site) -> Generator:
    name: Generator = request.param
    if reason := GENERATORS[name].problem(site):
        pytest.skip(reason)
    return name


@pytest.fixture(scope="module", params=[("perf_analyzer", "grpc"), ("client", "grpc"), ("client", "http")])
def measured(
    request: pytest.FixtureRequest,
    server: Any,
    identity: str,
    samples: Path,
    site: Site,
    tmp_path_factory: pytest.TempPathFactory,
) -> Measurement:
    """One point of the hosted identity, over each protocol."""
    generator, protocol = request.param
    if reason := GENERATORS[generator].problem(site):
        pytest.skip(reason)
    point = POINT.model_copy(update={"protocol": protocol})
    logs = tmp_path_factory.mktemp("logs")
    target = Target(endpoint=server.endpoint(identity), samples=samples, logs=logs, name="it")
    return GENERATORS[generator].measure(point, target, site)


def test_every_column_is_measured(measured: Measurement) -> None:
    numbers = [getattr(measured, name) for name in MEASURED]
    assert all(math.isfinite(v) and v >= 0 for v in numbers)
    assert measured.p50_ms <= measured.p90_ms <= measured.p95_ms <= measured.p99_ms
    assert measured.generator in GENERATORS


def test_windows_and_requests_are_as_many_as_planned(measured: Measurement) -> None:
    assert len(measured.windows) >= STABLE_WINDOWS
    assert measured.request_count >= STABLE_WINDOWS * POINT.request_count
    last = [window.throughput for window in measured.windows[-STABLE_WINDOWS:]]
    assert min(last) * 0.99 <= measured.throughput <= max(last) * 1.01


def test_littles_law_holds(measured: Measurement) -> None:
    in_flight = measured.throughput / POINT.batch * measured.avg_ms / 1e3
    assert in_flight == pytest.approx(POINT.concurrency, rel=0.15)


def test_components_sum_to_the_average(measured: Measurement) -> None:
    total = math.fsum(getattr(measured, name) for name in COMPONENTS)
    assert total == pytest.approx(measured.avg_ms, abs=0.05 * measured.avg_ms + 0.05)


def test_a_finished_measurement_leaves_no_regions(measured: Measurement, server: Any) -> None:
    assert not server.client.get_system_shared_memory_status().regions
    assert not regions(server)


def regions(server: Any) -> set[str]:
    """Shared memory files of the generators; the server's own are named after its models' stubs."""
    own = {name for stub in server.stubs() for name in stub.cmdline()}
    prefix = server.running.shm_prefix
    names = {path.name for path in SHM.iterdir()}
    return {n for n in names if n == "y" or n.startswith("x_") or (n.startswith(prefix) and n not in own)}


def test_the_generator_reports_its_own_load(measured: Measurement) -> None:
    assert measured.generator_processes
    assert measured.generator_cores is not None
    assert 0 < measured.generator_cores < measured.generator_processes * 2
    if measured.generator == "client":
        assert measured.generator_lag_ms is not None
        late = measured.generator_lag_ms > max(0.5, 0.05 * measured.avg_ms)
        assert measured.client_limited or not late  # on a busy host also where it takes the server's cores
    else:
        assert measured.generator_lag_ms is None
        assert measured.client_limited in (True, None)  # True where the host has no core to spare


def test_perf_analyzer_bounds_a_point_where_it_takes_cores_and_none_is_idle(
    server: Any, identity: str, samples: Path, site: Site, tmp_path: Path
) -> None:
    if reason := GENERATORS["perf_analyzer"].problem(site):
        pytest.skip(reason)
    target = Target(endpoint=server.endpoint(identity), samples=samples, logs=tmp_path, name="it")
    host = os.cpu_count() or 1
    busy = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(host)]
    try:
        found = GENERATORS["perf_analyzer"].measure(POINT, target, site)
    finally:
        for process in busy:
            process.kill()
            process.wait()
    assert found.generator_cores is not None
    assert found.client_limited is (True if found.generator_cores > 0.03 * host else None)


def test_a_server_that_is_gone_before_a_point_is_an_error(
    generator: Generator, start: Any, echo: Any, samples: Path, site: Site, tmp_path: Path
) -> None:
    with start(tmp_path) as server:
        server.load("echo", *echo)
        target = Target(endpoint=server.endpoint("echo"), samples=samples, logs=tmp_path, name="it")
    with pytest.raises(StepError) as caught:
        GENERATORS[generator].measure(POINT, target, site)
    assert Path(caught.value.log).is_file()


def test_a_server_that_stalls_for_a_second_shows_it_at_a_poisson_rate(
    server: Any, identity: str, samples: Path, site: Site, tmp_path: Path
) -> None:
    point = POINT.model_copy(
        update={"batch": 1, "concurrency": None, "request_rate": 100.0, "distribution": "poisson"}
    )
    target = Target(endpoint=server.endpoint(identity), samples=samples, logs=tmp_path, name="it")
    before = server.statistics(identity).inference_count
    with ThreadPoolExecutor(1) as pool:
        pending = pool.submit(GENERATORS["client"].measure, point, target, site)
        while server.statistics(identity).inference_count < before + 150:
            assert not pending.done(), pending.result()
            time.sleep(0.02)
        server.process.suspend()
        try:
            time.sleep(1.0)
        finally:
            server.process.resume()
        found = pending.result()
    assert 700 < found.p99_ms < 2500  # a closed loop would have sent one request in that second
    assert found.p50_ms < 200
    assert all(window.offered for window in found.windows)
    assert found.request_count == pytest.approx(found.throughput * len(found.windows), rel=0.5)
    assert found.throughput == pytest.approx(100.0, rel=0.25)


def test_a_high_rate_is_shared_by_processes(
    server: Any, identity: str, samples: Path, site: Site, tmp_path: Path
) -> None:
    point = POINT.model_copy(
        update={"batch": 1, "concurrency": None, "request_rate": 1100.0, "distribution": "constant"}
    )
    target = Target(endpoint=server.endpoint(identity), samples=samples, logs=tmp_path, name="it")
    found = GENERATORS["client"].measure(point, target, site)
    assert found.generator_processes == min(2, len(os.sched_getaffinity(0)))
    for window in found.windows:
        assert window.offered == pytest.approx(1100.0, rel=0.1)


@pytest.fixture
def echo(interface: Any, onnx_artifact: Any) -> tuple[Path, Any]:
    io = interface([("x", "int64", (-1, -1))], [("y", "int64", (-1, -1))])
    return onnx_artifact(io, [("Identity", ["x"], ["y"], {})]), io


def under_way(server: Any, pending: Future[Measurement]) -> psutil.Process:
    """The generator's process, once it has sent more than its warm-up."""
    before = server.statistics("echo").inference_count
    deadline = time.monotonic() + 30.0
    while server.statistics("echo").inference_count < before + 200 * POINT.batch:
        assert time.monotonic() < deadline and not pending.done(), pending
        time.sleep(0.02)
    for process in psutil.Process().children(recursive=True):
        words = " ".join(process.cmdline())
        if "supervise.py" not in words and (
            "bin/perf_analyzer" in words or "loadgen.client.process" in words
        ):
            return process
    raise AssertionError("no load generator is running")


def test_a_killed_generator_is_an_error_and_stands_in_nobodys_way(
    generator: Generator, start: Any, echo: Any, samples: Path, site: Site, tmp_path: Path
) -> None:
    with start(tmp_path) as server, ThreadPoolExecutor(1) as pool:
        server.load("echo", *echo)
        target = Target(endpoint=server.endpoint("echo"), samples=samples, logs=tmp_path, name="it")
        for _ in range(2):
            pending = pool.submit(GENERATORS[generator].measure, POINT, target, site)
            process = under_way(server, pending)
            assert regions(server)
            process.kill()
            with pytest.raises(StepError, match="killed") as caught:
                pending.result(timeout=10.0)
            assert Path(caught.value.log).is_file()
    assert not regions(server)


def test_a_server_killed_during_a_measurement_is_an_error_at_once(
    generator: Generator, start: Any, alive: Any, echo: Any, samples: Path, site: Site, tmp_path: Path
) -> None:
    with start(tmp_path) as server, ThreadPoolExecutor(1) as pool:
        server.load("echo", *echo)
        target = Target(endpoint=server.endpoint("echo"), samples=samples, logs=tmp_path, name="it")
        pending = pool.submit(GENERATORS[generator].measure, POINT, target, site)
        process = under_way(server, pending)
        stubs = server.stubs()
        server.process.kill()
        begin = time.monotonic()
        with pytest.raises(StepError):
            pending.result(timeout=10.0)
        assert time.monotonic() - begin < 10.0
    assert stubs
    assert not alive([process, *stubs])
    assert not regions(server)
