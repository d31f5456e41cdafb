"""Bar: the project's client measures what perf_analyzer measures, on one server, in turns.

A no-op and tiny BERT at concurrency 1, 4 and 16, batch 1 and 8; medians over the rounds. Where p50 is 20 ms
or more, throughput within 3 % and p50 and p95 within 5 %; below, p50 within 0.5 ms; the server's columns
within 0.1 ms or 10 %. A point that is out of the client's own bounds must be marked `client_limited`; one
that is marked must be so, or perf_analyzer must have got more throughput: where a client is late, requests
wait less in the server, and p50 may agree where throughput does not. Exits with 1 where a mark is wrong, or
a point that is not marked is out of a bound.
"""

from __future__ import annotations

import argparse
import statistics
import sys
from collections.abc import Iterator

from serving import serving

from servegrid.loadgen.base import Measurement, Point, Target
from servegrid.loadgen.generators import GENERATORS
from servegrid.loadgen.latency import COMPONENTS
from servegrid.store.site import default_site

SLOW_MS = 20.0
SERVER = [column for column, component in COMPONENTS.items() if component.statistic]


class Medians:
    """The medians of some measurements of one point, column by column."""

    def __init__(self, found: list[Measurement]) -> None:
        self.found = found

    def __getitem__(self, column: str) -> float:
        return statistics.median(getattr(m, column) for m in self.found)

    @property
    def bound(self) -> bool:
        return statistics.median_low(bool(m.client_limited) for m in self.found)


def within(ours: float, theirs: float, share: float, least: float = 0.0) -> bool:
    return abs(ours - theirs) <= max(share * theirs, least)


def out_of_bounds(client: Medians, theirs: Medians) -> Iterator[str]:
    """The columns in which the client differs by more than it may."""
    if theirs["p50_ms"] >= SLOW_MS:
        bounds = {"throughput": 0.03, "p50_ms": 0.05, "p95_ms": 0.05}
        yield from (c for c, share in bounds.items() if not within(client[c], theirs[c], share))
    elif not within(client["p50_ms"], theirs["p50_ms"], 0.0, 0.5):
        yield "p50_ms"


def server_out_of_bounds(client: Medians, theirs: Medians) -> Iterator[str]:
    return (c for c in SERVER if not within(client[c], theirs[c], 0.10, 0.1))


def compare(point: Point, target: Target, rounds: int) -> bool:
    """Measure one point in turns and print it; whether it is within the bar."""
    site = default_site()
    found: dict[str, list[Measurement]] = {"perf_analyzer": [], "client": []}
    for number in range(rounds):
        for name in found if number % 2 else reversed(list(found)):
            found[name].append(GENERATORS[name].measure(point, target, site))  # type: ignore[index]
    client, theirs = Medians(found["client"]), Medians(found["perf_analyzer"])
    off = list(out_of_bounds(client, theirs))
    server_off = [] if client.bound else list(server_out_of_bounds(client, theirs))
    held_back = client["throughput"] < 0.97 * theirs["throughput"]
    passed = bool(off) or held_back if client.bound else not off and not server_off
    ratios = ", ".join(
        f"{c.removesuffix('_ms')} {client[c] / theirs[c]:.3f} ({client[c]:.2f} / {theirs[c]:.2f})"
        for c in ("throughput", "p50_ms", "p95_ms")
    )
    server = ", ".join(f"{c[7:-3]} {client[c] - theirs[c]:+.3f}" for c in SERVER)
    print(
        f"{target.name} {point.label}: {ratios}; server ms {server}; lag {client['generator_lag_ms']:.2f} ms"
        f"{', client_limited' if client.bound else ''}{''.join(f', {c} off' for c in off + server_off)}: "
        f"{'PASS' if passed else 'FAIL'}",
        flush=True,
    )
    return passed


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--concurrency", type=int, nargs="+", default=[1, 4, 16])
    parser.add_argument("--batch", type=int, nargs="+", default=[1, 8])
    asked, site = parser.parse_args(), default_site()
    if reason := GENERATORS["perf_analyzer"].problem(site):
        print(f"{reason}: nothing to compare with")
        return 1
    print("client / perf_analyzer, medians; of the server's parts the difference")
    with serving(site) as bench:
        passed = [
            compare(
                Point(batch=b, concurrency=c, request_count=50, shared_memory="system", warm_up=True),
                target,
                asked.rounds,
            )
            for target in (bench.python_model("noop"), bench.tiny_bert())
            for b in asked.batch
            for c in asked.concurrency
        ]
    print(f"{sum(passed)} of {len(passed)} points within the bar: {'PASS' if all(passed) else 'FAIL'}")
    return int(not all(passed))


if __name__ == "__main__":
    sys.exit(main())
