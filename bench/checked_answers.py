"""Bar: keeping a random sample of the answers costs the client at most 2 % more CPU time a request.

One server holds a model that returns its input, int32 [b, 64]. The client measures it at concurrency 4 in
turns, with and without a reference to check answers by. Exits with 1 when the median of the ratios of CPU
time a request is over the bar, or when an answer is said to be wrong.
"""

from __future__ import annotations

import argparse
import os
import statistics
import sys

import numpy as np
from serving import serving

from servegrid.domain.tolerances import Tolerances
from servegrid.domain.values import Tensor
from servegrid.loadgen import GENERATORS
from servegrid.loadgen.base import Point
from servegrid.loadgen.reference import Reference
from servegrid.store.site import default_site

BAR = 1.02
POINT = Point(batch=1, concurrency=4, request_count=1000, window_s=0.5, shared_memory="none", warm_up=True)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--rounds", type=int, default=9)
    rounds, site = parser.parse_args().rounds, default_site()
    cpu_s: dict[bool, list[float]] = {False: [], True: []}
    wrong = 0
    with serving(site) as bench:
        plain = bench.python_model("echo")
        with np.load(plain.samples / "samples.npz") as file:
            np.savez(plain.samples / "outputs.npz", y=file["x/x"])
        reference = Reference(
            answers=plain.samples / "outputs.npz",
            outputs=(Tensor(name="y", dtype="int32", shape=(-1, 64)),),
            tolerances=Tolerances(absolute=1, cosine=1),
        )
        # On one core the client has one process: how many it takes otherwise depends on what else runs.
        os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
        targets = {False: plain, True: plain.model_copy(update={"reference": reference})}
        for number in range(rounds):
            for checked in (False, True) if number % 2 else (True, False):
                found = GENERATORS["client"].measure(POINT, targets[checked], site)
                assert found.generator_cores is not None
                cpu_s[checked].append(found.generator_cores / found.throughput)
                wrong += len(found.wrong_answers)
            ratio = cpu_s[True][-1] / cpu_s[False][-1]
            print(f"round {number + 1}: {cpu_s[True][-1] * 1e6:.1f} us a request, {ratio:.3f} x unchecked")
    added = statistics.median(a / b for a, b in zip(cpu_s[True], cpu_s[False], strict=True))
    verdict = "PASS" if added <= BAR and not wrong else "FAIL"
    print(f"{added:.3f} x the CPU time a request (bar {BAR}), {wrong} false alarms: {verdict}")
    return int(verdict == "FAIL")


if __name__ == "__main__":
    sys.exit(main())
