"""Stage of a comparison by turns: two served models are asked alternately, so that whatever changes on the
host meanwhile meets both."""

from __future__ import annotations

import shlex
import statistics
import sys
from collections.abc import Sequence
from pathlib import Path

from servegrid.domain.values import Endpoint, Value
from servegrid.host import proc
from servegrid.host.files import write_atomic
from servegrid.loadgen.client.lag import too_late
from servegrid.regression.verdict import Figures

METRICS = ("throughput", "p50_ms")
TURN_S = 0.25
PAIRS = 20


class Opponent(Value):
    """A model that is loaded, and the `profile_data` artifact with samples for it."""

    endpoint: Endpoint
    samples: Path


class Order(Value):
    """What the process is told, as a JSON file. A turn lasts `turn_s`, or 10 requests of each worker where
    those take longer."""

    a: Opponent
    b: Opponent
    batch: int
    concurrency: int
    pairs: int = PAIRS
    turn_s: float = TURN_S


class Turn(Value):
    """What one turn showed: inferences/s, the median latency of a request in ms, and how late the client was
    on average to see what had happened (null: it was not looked in so short a turn)."""

    throughput: float
    p50_ms: float
    lag_ms: float | None


class Turns(Value):
    """Pair by pair; which side began changed from pair to pair."""

    a: tuple[Turn, ...]
    b: tuple[Turn, ...]

    def figures(self, scenario: str, order: Order) -> tuple[Figures, ...]:
        """As the figures of one point; in doubt where the client was too late beside either side."""
        doubts = (
            f"{side}: {doubt}" for side, doubt in (("A", _doubt(self.a)), ("B", _doubt(self.b))) if doubt
        )
        doubt = "; ".join(doubts)
        return tuple(
            Figures(
                point=f"{scenario}, batch {order.batch} x {order.concurrency}",
                metric=metric,
                a=tuple(getattr(turn, metric) for turn in self.a),
                b=tuple(getattr(turn, metric) for turn in self.b),
                in_pairs=True,
                doubt=doubt,
            )
            for metric in METRICS
        )


def _doubt(turns: Sequence[Turn]) -> str:
    """Why the turns of one side tell of the client rather than of the server, by the rule of a measured
    point; "" where they do not."""
    lags = [turn.lag_ms for turn in turns if turn.lag_ms is not None]
    lag_ms = statistics.mean(lags) if lags else 0.0
    latency_ms = statistics.median(turn.p50_ms for turn in turns)
    if not too_late(lag_ms, latency_ms):
        return ""
    return f"the client was {lag_ms:.2f} ms late of {latency_ms:.2f} ms"


def take(order: Order, logs: Path, name: str) -> Turns:
    """Have a process of its own take the turns.

    Raises:
        StepError: it failed or hung; a server may be gone.
    """
    path = logs / f"{name}.b{order.batch}c{order.concurrency}.turns.json"
    result, log_path = path.with_suffix(".result.json"), path.with_suffix(".log")
    write_atomic(path, order.model_dump_json(indent=1))
    args = [sys.executable, "-P", "-m", "servegrid.regression.interleaved_process", str(path), str(result)]
    slowest_s = max(order.a.endpoint.first_request_ms, order.b.endpoint.first_request_ms) / 1e3
    limit = 120 + 2 * order.pairs * max(order.turn_s, 20 * order.batch * order.concurrency * slowest_s)
    proc.run(args, log_path=log_path, timeout_s=limit, repeat=shlex.join(args))
    return Turns.model_validate_json(result.read_text(encoding="utf-8"))
