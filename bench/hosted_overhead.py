"""Bar: the hosted runtime adds under 0.15 ms to a bare Python-backend model, both in one run.

One server holds two no-op models, int32 [b, 64]: the project's `model.py` with a session that returns
its input, and a Python-backend model that does the least. Both are measured at concurrency 1,
in turns. Exits with 1 when the median of the differences is over the bar.
"""

from __future__ import annotations

import shutil
import statistics
import sys
import tempfile
from contextlib import ExitStack
from pathlib import Path

import numpy as np
import tritonclient.grpc as triton

from tasks.configure import HOSTING
from tasks.core.site import default_site
from tasks.core.values import Endpoint, Generator
from tasks.loadgen import GENERATORS
from tasks.loadgen.base import Point, Target
from tasks.servers import embedded

BAR_MS = 0.15
ROUNDS = 5
POINT = Point(batch=1, concurrency=1, request_count=50, shared_memory="system", warm_up=True)
CONFIG = """
backend: "python" max_batch_size: 8
input { name: "x" data_type: TYPE_INT32 dims: 64 } output { name: "y" data_type: TYPE_INT32 dims: 64 }
instance_group { count: 1 kind: KIND_CPU } dynamic_batching { max_queue_delay_microseconds: 1 }
"""
NOOP_SESSION = """
class Session:
    def __init__(self, artifact, kind): pass
    def run(self, inputs): return {"y": inputs["x"]}
"""
BARE = """
import triton_python_backend_utils as pb_utils
class TritonPythonModel:
    def execute(self, requests):
        inputs = [pb_utils.get_input_tensor_by_name(request, "x") for request in requests]
        outputs = [pb_utils.Tensor.from_dlpack("y", x.to_dlpack()) for x in inputs]
        return [pb_utils.InferenceResponse([y]) for y in outputs]
"""


def write_models(repository: Path) -> None:
    """`hosted` and `bare`."""
    hosted, bare = (repository / name / "1" for name in ("hosted", "bare"))
    for folder in (hosted, bare):
        folder.mkdir(parents=True)
        (folder.parent / "config.pbtxt").write_text(CONFIG)
    for file in ("model.py", "pipeline.py"):
        shutil.copy(HOSTING / file, hosted)
    (hosted / "noop_session.py").write_text(NOOP_SESSION)
    with (hosted.parent / "config.pbtxt").open("a") as file:
        file.write('parameters { key: "session" value { string_value: "noop_session" } }\n')
    (bare / "model.py").write_text(BARE)


def main() -> int:
    site = default_site()
    generator: Generator = "perf_analyzer"
    if reason := GENERATORS[generator].problem(site):
        print(f"{reason}\nthe project's own client measures instead")
        generator = "client"
    x = np.arange(32 * 64, dtype=np.int32).reshape(32, 64)
    p50: dict[str, list[float]] = {"bare": [], "hosted": []}
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        np.savez(folder / "samples.npz", allow_pickle=False, **{"x/x": x})
        write_models(folder / "repository")
        server = stack.enter_context(embedded.serve(site, folder / "repository", folder / "server.log"))
        client = stack.enter_context(triton.InferenceServerClient(server.grpc_url))
        known = server.model_dump(include={"grpc_url", "http_url", "shm_prefix"})
        for model in p50:
            client.load_model(model)
            tensor = triton.InferInput("x", [2, 64], "INT32").set_data_from_numpy(x[:2])
            assert np.array_equal(client.infer(model, [tensor]).as_numpy("y"), x[:2]), model
        for number in range(ROUNDS):
            for model in p50 if number % 2 else reversed(p50):
                endpoint = Endpoint(
                    model=model, server="embedded", server_version=server.version, server_log=server.log,
                    backend="hosted", load_s=0, first_request_ms=0, **known,
                )  # fmt: skip
                target = Target(endpoint=endpoint, samples=folder, logs=folder, name=model)
                p50[model].append(GENERATORS[generator].measure(POINT, target, site).p50_ms)
            print(f"round {number + 1}: p50 hosted {p50['hosted'][-1]:.3f} ms, bare {p50['bare'][-1]:.3f} ms")
    added = statistics.median(h - b for h, b in zip(p50["hosted"], p50["bare"], strict=True))
    verdict = "PASS" if added < BAR_MS else "FAIL"
    print(f"{generator}: the runtime adds {added:.3f} ms (bar {BAR_MS} ms): {verdict}")
    return int(verdict == "FAIL")


if __name__ == "__main__":
    sys.exit(main())
