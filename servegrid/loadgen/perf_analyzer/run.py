"""NVIDIA's perf_analyzer: one run a point, its windows judged by the project's own rule."""

from __future__ import annotations

import csv
import math
import os
import re
import resource
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import tritonclient.grpc as triton
from tritonclient.utils import InferenceServerException

from servegrid.domain.errors import StepError
from servegrid.domain.values import Value
from servegrid.host import proc
from servegrid.host.device_locks import host_lock
from servegrid.loadgen.base import (
    MAX_WINDOWS,
    STABLE_WINDOWS,
    STABLE_WITHIN,
    WARM_UP_REQUESTS,
    Measurement,
    Point,
    Target,
    Window,
    timeout_s,
)
from servegrid.loadgen.lag import idle_s, starves_the_server
from servegrid.loadgen.latency import COMPONENTS
from servegrid.loadgen.perf_analyzer import install
from servegrid.servers.samples import Samples, output_sizes, server_config
from servegrid.store.site import Site

VERSION = install.VERSION
DISTINCT_SAMPLES = 64
FEWEST_SAMPLES = 8
COPIES = 4_000_000
"""Before it measures with CUDA shared memory, perf_analyzer copies every row alone to the card: samples x
batch x inputs. 64 x 16384 x 29 took three minutes on an H200."""
PASS = re.compile(r"Pass \[\d+\] throughput: ([\d.e+]+) infer/sec\. Avg latency: (\d+) usec")
REQUESTS = re.compile(r"^\s*Request count: (\d+)", re.MULTILINE)
COLUMNS = {
    **{component.perf_analyzer: column for column, component in COMPONENTS.items()},
    **{f"p{n} latency": f"p{n}_ms" for n in (50, 90, 95, 99)},
    "Avg latency": "avg_ms",
}
"""perf_analyzer's CSV columns (microseconds) -> ours."""


class Warm(Value):
    """Findings of a batch size's warm-up: fastest request, names of inputs, bytes of each output."""

    request_ms: float
    inputs: tuple[str, ...]
    outputs: dict[str, int]


def problem(site: Site) -> str | None:
    """Why it cannot be used here, with what to do."""
    return install.problem(site)


def measure(point: Point, target: Target, site: Site) -> Measurement:
    """Measure one point.

    perf_analyzer does not report its lag, so `client_limited` is true where it took cores from the server,
    and null elsewhere, never false.

    Raises:
        StepError: perf_analyzer failed, hung, or gave a partial result; or the server is gone.
    """
    assert point.concurrency, "it counts latency from the time at which it sends, not from the intended one"
    folder = target.logs / f"{target.name}.{point.label}.perf_analyzer"
    folder.mkdir(parents=True, exist_ok=True)
    try:
        warm = _warm_up(point, target, folder)
    except InferenceServerException as error:
        log = target.endpoint.server_log
        raise StepError(f"the server did not warm up for {point.label}: {error}", log=log) from error
    # A window cannot have more requests than this; if that is too few, windows are counted, not timed.
    most = point.concurrency / (warm.request_ms / 1e3) * point.window_s
    counted = most < point.request_count * 1.2
    point = point.model_copy(
        update={"request_count": max(point.request_count, math.ceil(most) if counted else 0)}
    )
    found = _run(point, target, site, folder, warm, counted=counted)
    if found.request_count < STABLE_WINDOWS * point.request_count and not counted:
        found = _run(point, target, site, folder, warm, counted=True)
    return found


def _warm_up(point: Point, target: Target, folder: Path) -> Warm:
    """Write the input data and send this batch a few times, or once where no warm-up is wanted."""
    endpoint = target.endpoint
    with triton.InferenceServerClient(endpoint.grpc_url) as client:
        samples = Samples.read(target.samples, server_config(client, endpoint.model), point.input_data)
        distinct = distinct_samples(point, len(samples.arrays))
        samples.write_perf_analyzer(folder / "inputs.json", distinct)
        inputs = samples.batch(0, point.batch).inputs()
        fastest = math.inf
        for _ in range(WARM_UP_REQUESTS if point.warm_up else 1):
            start = time.perf_counter()
            client.infer(endpoint.model, inputs, client_timeout=timeout_s(point, target))
            fastest = min(fastest, (time.perf_counter() - start) * 1e3)
        outputs = output_sizes(client, endpoint.model, samples, point.batch, distinct)
    return Warm(request_ms=fastest, inputs=tuple(samples.arrays), outputs=outputs)


def distinct_samples(point: Point, inputs: int) -> int:
    """How many samples the batches are made of, one after the other."""
    if point.shared_memory != "cuda":
        return DISTINCT_SAMPLES
    return min(max(COPIES // (point.batch * inputs), FEWEST_SAMPLES), DISTINCT_SAMPLES)


def _run(point: Point, target: Target, site: Site, folder: Path, warm: Warm, *, counted: bool) -> Measurement:
    """A run that stops when its windows agree; if they never do, a run of three windows whatever they are."""
    try:
        return _once(point, target, site, folder, warm, counted, STABLE_WITHIN, MAX_WINDOWS)
    except StepError as error:
        if "Failed to obtain stable measurement" not in str(error):
            raise
    return _once(point, target, site, folder, warm, counted, 1e3, STABLE_WINDOWS)


def _once(
    point: Point,
    target: Target,
    site: Site,
    folder: Path,
    warm: Warm,
    counted: bool,
    within: float,
    windows: int,
) -> Measurement:
    table, log_path = folder / "table.csv", folder / "output.log"
    for path in (table, log_path):
        path.unlink(missing_ok=True)
    command = install.command(site)
    assert command is not None
    endpoint = target.endpoint
    url = endpoint.grpc_url if point.protocol == "grpc" else endpoint.http_url
    args = [
        *command,
        *("-m", endpoint.model, "-u", url, "-i", point.protocol),
        *("-b", str(point.batch), "--concurrency-range", str(point.concurrency)),
        *("--input-data", str(folder / "inputs.json"), "-f", str(table), "--verbose-csv", "-v"),
        *("-s", f"{within * 100:g}", "-r", str(windows)),
    ]
    if counted:
        args += ["--measurement-mode", "count_windows"]
        args += ["--measurement-request-count", str(point.request_count)]
    else:
        args += ["--measurement-mode", "time_windows", "-p", f"{point.window_s * 1e3:.0f}"]
    if point.shared_memory != "none":
        args += ["--shared-memory", point.shared_memory]
        args += ["--output-shared-memory-size", str(max(warm.outputs.values()))]
    with _regions(point, warm):
        start, cpu_s, idle = time.perf_counter(), _children_cpu_s(), idle_s()
        proc.run(args, log_path=log_path, timeout_s=timeout_s(point, target))
        seconds = time.perf_counter() - start
        cores, idle_cores = (_children_cpu_s() - cpu_s) / seconds, (idle_s() - idle) / seconds
    found = parse(point, log_path.read_text(errors="replace"), table)
    bound = True if starves_the_server(idle_cores, cores) else None
    own = {"generator_processes": 1, "generator_cores": cores, "client_limited": bound}
    return found.model_copy(update=own)


def _children_cpu_s() -> float:
    """CPU time of all processes that have ended below this one."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def parse(point: Point, output: str, table: Path) -> Measurement:
    """A run's output and CSV as a measurement.

    Raises:
        StepError: the results lack the point, in whole or in part.
    """
    windows = tuple(
        Window(throughput=float(rate), avg_ms=int(latency) / 1e3) for rate, latency in PASS.findall(output)
    )
    counts = REQUESTS.findall(output)
    try:
        with table.open(newline="") as file:
            rows = list(csv.DictReader(file))
        (row,) = (r for r in rows if r["Concurrency"] == str(point.concurrency))
        values = {ours: float(row[theirs]) / 1e3 for theirs, ours in COLUMNS.items()}
        throughput, request_count = float(row["Inferences/Second"]), int(counts[0])
    except (OSError, ValueError, KeyError, TypeError, IndexError) as error:
        raise StepError(
            f"perf_analyzer ended well, but its results lack batch {point.batch}, concurrency "
            f"{point.concurrency}, in whole or in part ({error})",
            log=str(table.with_name("output.log")),
        ) from error
    measured = throughput > 0 and math.isfinite(throughput + sum(values.values()))
    if len(windows) < STABLE_WINDOWS or not measured:
        raise StepError(
            f"perf_analyzer gave a partial result: {len(windows)} windows, {throughput:g} inferences/s",
            log=str(table.with_name("output.log")),
        )
    return Measurement(
        **values,
        throughput=throughput,
        request_count=request_count,
        windows=windows,
        generator="perf_analyzer",
        generator_version=VERSION,
    )


@contextmanager
def turn(point: Point) -> Iterator[None]:
    """Hold the host's lock of perf_analyzer's regions. It names its regions of shared memory after the
    tensors alone, so two of them on one host would use the same: with shared memory one runs at a time."""
    if point.shared_memory == "none":
        yield
        return
    with host_lock("perf_analyzer-shared-memory"):
        yield


@contextmanager
def _regions(point: Point, warm: Warm) -> Iterator[None]:
    """Remove the regions of shared memory that a killed perf_analyzer leaves."""
    try:
        yield
    except BaseException:
        if point.shared_memory != "none":
            _remove_regions(warm)
        raise


def _remove_regions(warm: Warm) -> None:
    """Remove the regions of a killed perf_analyzer, named INPUT_stream_step and OUTPUT, from /dev/shm."""
    for path in Path("/dev/shm").iterdir():
        stem = path.name.rsplit("_", 2)[0]
        if (stem in warm.inputs or path.name in warm.outputs) and path.stat().st_uid == os.getuid():
            path.unlink(missing_ok=True)
