"""Two served models measured in interleaved runs, so that changes on the host affect both alike."""

from __future__ import annotations

import shlex
import statistics
import sys
from collections.abc import Sequence
from pathlib import Path

from servegrid.domain.values import Endpoint, Value
from servegrid.host import proc
from servegrid.host.files import write_atomic
from servegrid.loadgen.lag import too_late
from servegrid.regression.verdict import Figures
from servegrid.servers.liveness import naming_a_lost_server

METRICS = ("throughput", "p50_ms")
RUN_S = 0.25
PAIRS = 20


class CandidateEndpoint(Value):
    """A loaded model, and the `profile_data` artifact with its samples."""

    endpoint: Endpoint
    samples: Path


class InterleavedJob(Value):
    """The job of the measuring process, a JSON file. A run lasts `run_s` seconds, or 10 requests of each
    worker if those take longer."""

    a: CandidateEndpoint
    b: CandidateEndpoint
    batch: int
    concurrency: int
    pairs: int = PAIRS
    run_s: float = RUN_S


class Run(Value):
    """One run: inferences/s, the median latency of a request in ms, and the mean lag of the client's event
    loop in ms (null: no sample in so short a run)."""

    throughput: float
    p50_ms: float
    lag_ms: float | None


class InterleavedRuns(Value):
    """The runs, pair by pair; A runs first in every other pair."""

    a: tuple[Run, ...]
    b: tuple[Run, ...]

    def figures(self, scenario: str, job: InterleavedJob) -> tuple[Figures, ...]:
        """The figures of one point; doubtful where the client limited A or B."""
        doubts = {"A": _doubt(self.a), "B": _doubt(self.b)}
        doubt = "; ".join(f"{candidate}: {reason}" for candidate, reason in doubts.items() if reason)
        return tuple(
            Figures(
                point=f"{scenario}, batch {job.batch} x {job.concurrency}",
                metric=metric,
                a=tuple(getattr(run, metric) for run in self.a),
                b=tuple(getattr(run, metric) for run in self.b),
                in_pairs=True,
                doubt=doubt,
            )
            for metric in METRICS
        )


def _doubt(runs: Sequence[Run]) -> str:
    """Why the client limited these runs, by the rule of a measured point; "" if it did not."""
    lags = [run.lag_ms for run in runs if run.lag_ms is not None]
    lag_ms = statistics.mean(lags) if lags else 0.0
    latency_ms = statistics.median(run.p50_ms for run in runs)
    if not too_late(lag_ms, latency_ms):
        return ""
    return f"the client was {lag_ms:.2f} ms late of {latency_ms:.2f} ms"


def measure(job: InterleavedJob, logs: Path, name: str) -> InterleavedRuns:
    """Measure both candidates in a separate process.

    Raises:
        StepError: the process failed or hung, or a server is gone.
    """
    path = logs / f"{name}.b{job.batch}c{job.concurrency}.runs.json"
    result, log_path = path.with_suffix(".result.json"), path.with_suffix(".log")
    write_atomic(path, job.model_dump_json(indent=1))
    args = [sys.executable, "-P", "-m", "servegrid.regression.interleaved_process", str(path), str(result)]
    slowest_s = max(job.a.endpoint.first_request_ms, job.b.endpoint.first_request_ms) / 1e3
    limit = 120 + 2 * job.pairs * max(job.run_s, 20 * job.batch * job.concurrency * slowest_s)
    with naming_a_lost_server(job.a.endpoint), naming_a_lost_server(job.b.endpoint):
        proc.run(args, log_path=log_path, timeout_s=limit, repeat=shlex.join(args))
    return InterleavedRuns.model_validate_json(result.read_text(encoding="utf-8"))
