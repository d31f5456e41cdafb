"""A short measurement of a tiny model on the embedded server, which shows that perf_analyzer works here.

`perf_analyzer --version` shows less: the binary opens CUDA's runtime only once it measures.
"""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import tritonclient.grpc as triton
from tritonclient.utils import InferenceServerException

from servegrid.domain.errors import StepError, UserError
from servegrid.domain.values import Endpoint
from servegrid.loadgen.base import Point, Target
from servegrid.loadgen.perf_analyzer import run as perf_analyzer
from servegrid.servers import embedded
from servegrid.store.site import Site

MODEL = "identity"
CONFIG = """
backend: "python"
max_batch_size: 4
input { name: "x" data_type: TYPE_FP32 dims: 4 }
output { name: "y" data_type: TYPE_FP32 dims: 4 }
instance_group { kind: KIND_CPU }
"""
CODE = """
import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    def execute(self, requests):
        return [
            pb_utils.InferenceResponse([pb_utils.Tensor.from_dlpack("y", tensor.to_dlpack())])
            for request in requests
            for tensor in request.inputs()
        ]
"""
POINT = Point(batch=2, concurrency=2, request_count=50, window_s=0.2, shared_memory="system", warm_up=True)


def measure(site: Site) -> None:
    """Measure the identity on four floats.

    Raises:
        UserError: the embedded server cannot be started here.
        StepError: the server or perf_analyzer failed.
    """
    if problems := embedded.problems(site):
        raise UserError("; ".join(problems))
    with tempfile.TemporaryDirectory(dir=site.home) as name:
        folder = Path(name)
        samples, version = folder / "samples", folder / "models" / MODEL / "1"
        for path in (samples, version):
            path.mkdir(parents=True)
        (version.parent / "config.pbtxt").write_text(CONFIG, encoding="utf-8")
        (version / "model.py").write_text(CODE, encoding="utf-8")
        arrays: dict[str, Any] = {"ids": np.arange(8), "x/x": np.arange(32, dtype=np.float32).reshape(8, 4)}
        np.savez(samples / "samples.npz", allow_pickle=False, **arrays)
        with embedded.serve(site, folder / "models", folder / "server.log") as running:
            with triton.InferenceServerClient(running.grpc_url) as client:
                try:
                    client.load_model(MODEL)
                except InferenceServerException as error:
                    raise StepError(f"the server did not load the model: {error}") from error
            endpoint = Endpoint(
                grpc_url=running.grpc_url,
                http_url=running.http_url,
                model=MODEL,
                shm_prefix=running.shm_prefix,
                server=running.provider,
                server_version=running.version,
                server_log=running.log,
                backend="python",
                load_s=None,
                first_request_ms=0.0,
            )
            target = Target(endpoint=endpoint, samples=samples, logs=folder / "logs", name="trial")
            perf_analyzer.measure(POINT, target, site)
