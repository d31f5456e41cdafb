"""Bar: a served model reaches 93 % of its own session called synchronously with NumPy, both in one run.

    python bench/served_share.py results/CAMPAIGN/repositories/CELL/MODEL/1/artifact onnx --gpu --cuda-graph

For each batch size the artifact's session is timed in a process of its own, then served by the hosted
runtime and measured at concurrency 1; then one sample at a time from many clients, through the dynamic
batcher. Requests are the artifact's own example. Exits with 1 when the share at the largest batch is under
the bar.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from contextlib import ExitStack
from pathlib import Path

import numpy as np
import tritonclient.grpc as triton

from servegrid.domain.values import Endpoint, Interface, Serving
from servegrid.formats import FORMATS
from servegrid.formats.repository import write_repository
from servegrid.loadgen.base import Point, Target
from servegrid.loadgen.generators import GENERATORS
from servegrid.servers import embedded
from servegrid.store.site import default_site

BAR = 0.93
ALONE = """
import json, sys, time
from pathlib import Path
import numpy as np
from importlib import import_module
artifact, folder, kind, graph, batches = json.loads(sys.argv[1])
on_gpu = {"cuda_graph": graph} if kind == "GPU" else {}
model = import_module(f"servegrid.formats.{folder}.session").Session(Path(artifact), kind, **on_gpu)
with np.load(Path(artifact) / "example.npz") as file:
    x = {k[2:]: file[k] for k in file if k.startswith("x/")}
for batch in batches:
    inputs = {k: np.ascontiguousarray(np.resize(v, (batch, *v.shape[1:]))) for k, v in x.items()}
    for _ in range(5):
        model.run(inputs)
    start, calls = time.perf_counter(), 0
    while (seconds := time.perf_counter() - start) < 3:
        model.run(inputs)
        calls += 1
    print(json.dumps({"batch": batch, "throughput": calls * batch / seconds}), flush=True)
"""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("artifact", type=Path)
    parser.add_argument("format", choices=[name for name, known in FORMATS.items() if known.hosted])
    parser.add_argument("--gpu", action="store_true")
    parser.add_argument("--cuda-graph", action="store_true")
    parser.add_argument("--batch", type=int, nargs="+", default=[1, 8, 16])
    parser.add_argument("--clients", type=int, nargs="+", default=[64])
    parser.add_argument("--instances", type=int, nargs="+", default=[1])
    asked = parser.parse_args()
    artifact, site = asked.artifact.resolve(), default_site()
    kind = "GPU" if asked.gpu else "CPU"
    hosted = FORMATS[asked.format].hosted
    assert hosted is not None, f"{asked.format} is not hosted"
    what = [str(artifact), hosted.folder, kind, asked.cuda_graph, asked.batch]
    done = subprocess.run(
        [sys.executable, "-c", ALONE, json.dumps(what)], check=True, stdout=subprocess.PIPE, text=True
    )
    entries = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
    alone = {entry["batch"]: entry["throughput"] for entry in entries}
    largest, share = max(asked.batch), 0.0
    interface = Interface.model_validate_json((artifact / "interface.json").read_text(encoding="utf-8"))
    generator = GENERATORS["client" if GENERATORS["perf_analyzer"].problem(site) else "perf_analyzer"]
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        with np.load(artifact / "example.npz") as file:
            x = {k: np.resize(file[k], (64, *file[k].shape[1:])) for k in file if k.startswith("x/")}
        np.savez(folder / "samples.npz", allow_pickle=False, **x)
        repository = folder / "repository"
        repository.mkdir()
        running = stack.enter_context(embedded.serve(site, repository, folder / "server.log"))
        client = stack.enter_context(triton.InferenceServerClient(running.grpc_url))

        def measure(serving: Serving, batch: int, clients: int) -> float:
            name = f"{serving.batching}{serving.instances}"
            if not client.is_model_ready(name):
                write_repository(repository, name, asked.format, serving, interface, artifact)
                client.load_model(name)
            endpoint = Endpoint(
                model=name, server="embedded", server_version=running.version, server_log=running.log,
                backend="hosted", load_s=0, first_request_ms=100,
                **running.model_dump(include={"grpc_url", "http_url", "shm_prefix"}),
            )  # fmt: skip
            target = Target(endpoint=endpoint, samples=folder, logs=folder, name=name)
            point = Point(
                batch=batch, concurrency=clients, request_count=50, shared_memory="system", warm_up=True
            )
            found = generator.measure(point, target, site)
            print(
                f"{name}, batch {batch} x {clients}: {found.throughput:.1f} inferences/s, "
                f"avg {found.avg_ms:.2f} ms (queue {found.server_queue_ms:.2f},"
                f" input {found.server_compute_input_ms:.2f}, infer {found.server_compute_infer_ms:.2f},"
                f" output {found.server_compute_output_ms:.2f}),"
                f" p99 {found.p99_ms:.2f} ms{'' if found.stable else ' (unstable)'}",
                flush=True,
            )
            return found.throughput

        device = "gpu" if asked.gpu else "cpu"
        static = Serving(
            batching="static", max_batch_size=largest, device_kind=device, cuda_graph=asked.cuda_graph
        )
        for batch in asked.batch:
            share = measure(static, batch, 1) / alone[batch]
            print(f"  alone {alone[batch]:.1f}; served is {share:.1%} of it", flush=True)
        client.unload_model("static1")
        for instances in asked.instances:
            more = {"batching": "dynamic", "instances": instances, "preferred_batch_sizes": (largest,)}
            for clients in asked.clients:
                measure(static.model_copy(update=more), 1, clients)
            client.unload_model(f"dynamic{instances}")
    print(f"batch {largest}: {share:.1%} (bar {BAR:.0%}): {'PASS' if share >= BAR else 'FAIL'}")
    return int(share < BAR)


if __name__ == "__main__":
    sys.exit(main())
