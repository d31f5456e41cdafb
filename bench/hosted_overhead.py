"""Bar: the hosted runtime adds under 0.15 ms to a bare Python-backend model, both in one run.

One server holds two no-op models, int32 [b, 64]: the project's `model.py` with a session that returns
its input, and a Python-backend model that does the least. Both are measured at concurrency 1,
in turns. Exits with 1 when the median of the differences is over the bar.
"""

from __future__ import annotations

import argparse
import statistics
import sys

import numpy as np
import tritonclient.grpc as triton
from serving import serving

from servegrid.domain.values import Generator
from servegrid.loadgen.base import Point
from servegrid.loadgen.generators import GENERATORS
from servegrid.store.site import default_site

BAR_MS = 0.15
POINT = Point(batch=1, concurrency=1, request_count=50, shared_memory="system", warm_up=True)
BATCHER = "dynamic_batching { max_queue_delay_microseconds: 1 }"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5)
    asked, site = parser.parse_args(), default_site()
    generator: Generator = "perf_analyzer"
    if reason := GENERATORS[generator].problem(site):
        print(f"{reason}\nthe project's own client measures instead")
        generator = "client"
    x = np.arange(2 * 64, dtype=np.int32).reshape(2, 64)
    p50: dict[str, list[float]] = {"bare": [], "hosted": []}
    with serving(site) as bench:
        targets = {
            "bare": bench.python_model("bare", more=BATCHER),
            "hosted": bench.hosted_model("hosted", more=BATCHER),
        }
        for model in targets:
            tensor = triton.InferInput("x", [2, 64], "INT32").set_data_from_numpy(x)
            assert np.array_equal(bench.client.infer(model, [tensor]).as_numpy("y"), x), model
        for number in range(asked.rounds):
            for model in p50 if number % 2 else reversed(p50):
                p50[model].append(GENERATORS[generator].measure(POINT, targets[model], site).p50_ms)
            print(f"round {number + 1}: p50 hosted {p50['hosted'][-1]:.3f} ms, bare {p50['bare'][-1]:.3f} ms")
    added = statistics.median(h - b for h, b in zip(p50["hosted"], p50["bare"], strict=True))
    verdict = "PASS" if added < BAR_MS else "FAIL"
    print(f"{generator}: the runtime adds {added:.3f} ms (bar {BAR_MS} ms): {verdict}")
    return int(verdict == "FAIL")


if __name__ == "__main__":
    sys.exit(main())
