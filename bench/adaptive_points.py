"""Bar: adaptive points find what 32 fixed ones find, in a third of the time.

A hosted model sleeps, in a known number of instances, so its capacity and its knee are known. Medians of the
runs: best throughput within 3 % of the fixed points', the knee within one refinement step of the truth, and a
third of the time at most. Exits with 1 when one of them is over the bar.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import time

from serving import serving

from servegrid.domain.values import LoadPlan
from servegrid.loadgen.base import Measurement, Target
from servegrid.loadgen.generators import GENERATORS
from servegrid.loadgen.search.adaptive import STEP, knee
from servegrid.loadgen.search.points import measured, steps
from servegrid.store.site import default_site

SLEEP_S = 0.025
FIXED = tuple(range(1, 33))


def explore(plan: LoadPlan, target: Target) -> tuple[float, int, float, int]:
    """Measure a plan's points: best throughput, the knee, seconds, and how many points."""
    start, found = time.perf_counter(), dict[int, Measurement]()
    following = steps(plan)
    try:
        chosen = next(following)
        while True:
            point = chosen.point
            assert point.concurrency
            one = GENERATORS[plan.generator].measure(point, target, default_site())
            found[point.concurrency] = one
            chosen = following.send(one)
    except StopIteration:
        seconds = time.perf_counter() - start
    return max(m.throughput for m in found.values()), knee(measured(found)), seconds, len(found)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--instances", type=int, default=8)
    parser.add_argument("--most", type=int, default=FIXED[-1], help="the largest concurrency")
    asked = parser.parse_args()
    fixed = LoadPlan(scenario="online", batch_sizes=(1,), concurrency=FIXED[: asked.most], generator="client")
    plans = {"fixed": fixed, "adaptive": fixed.model_copy(update={"fixed_points": False})}
    ratios: list[float] = []
    shares: list[float] = []
    knees: list[int] = []
    with serving(default_site()) as bench:
        target = bench.hosted_model("sleeping", sleep_s=SLEEP_S, instances=asked.instances)
        for run in range(asked.runs):
            found = {name: explore(plan, target) for name, plan in plans.items()}
            for name, (throughput, at, seconds, points) in found.items():
                print(
                    f"run {run + 1}, {name}: {points} points in {seconds:.0f} s, best {throughput:.1f} "
                    f"inferences/s, knee {at}",
                    flush=True,
                )
            ratios.append(found["adaptive"][0] / found["fixed"][0])
            shares.append(found["adaptive"][2] / found["fixed"][2])
            knees.append(abs(found["adaptive"][1] - asked.instances))
    ratio, share, off = map(statistics.median, (ratios, shares, knees))
    step = max(1, asked.instances // STEP)
    passed = abs(ratio - 1) <= 0.03 and off <= step and share <= 1 / 3
    print(
        f"adaptive / fixed, medians: best throughput {ratio:.3f} (bar 0.97 to 1.03), time {share:.3f} "
        f"(bar 0.333), knee {off:g} off {asked.instances} (bar {step}): {'PASS' if passed else 'FAIL'}"
    )
    return int(not passed)


if __name__ == "__main__":
    sys.exit(main())
