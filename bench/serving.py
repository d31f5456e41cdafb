"""What the benchmarks of the load generators share: a server, small models in it, and tiny BERT."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import tritonclient.grpc as triton

from flows.cell import build_cell, workplace
from servegrid.domain.values import Endpoint, Interface
from servegrid.formats.repository import write_repository
from servegrid.formats.runtime_files import copy_runtime, session_file
from servegrid.loadgen.base import Target
from servegrid.plan.options import SweepOptions
from servegrid.servers import embedded
from servegrid.servers.base import Running
from servegrid.store.site import Site
from tasks.planning import plan

CONFIG = """
backend: "python" max_batch_size: 8
input {{ name: "x" data_type: TYPE_INT32 dims: 64 }} output {{ name: "y" data_type: TYPE_INT32 dims: 64 }}
instance_group {{ count: {instances} kind: KIND_CPU }}
{more}
"""
MODEL = """
import time
import triton_python_backend_utils as pb_utils
class TritonPythonModel:
    def execute(self, requests):
        inputs = [pb_utils.get_input_tensor_by_name(request, "x") for request in requests]
        outputs = [pb_utils.Tensor.from_dlpack("y", x.to_dlpack()) for x in inputs]
        {sleep}
        return [pb_utils.InferenceResponse([y]) for y in outputs]
"""


SESSION = """
import time
class Session:
    def __init__(self, artifact, kind): pass
    def run(self, inputs):
        {sleep}
        return {{"y": inputs["x"]}}
"""
HOSTED = 'parameters { key: "session" value { string_value: "sleeping" } }'


class Bench:
    """A running server and its repository."""

    def __init__(self, site: Site, folder: Path, running: Running, client: Any) -> None:
        self.site, self.folder, self.running, self.client = site, folder, running, client

    def python_model(self, name: str, *, sleep_s: float = 0.0, instances: int = 1, more: str = "") -> Target:
        """A bare Python-backend model that returns its input, int32 [b, 64], after a sleep; with no more in
        its config than `more`, and so without the dynamic batcher."""
        files = {"model.py": MODEL.format(sleep=_sleep(sleep_s))}
        return self._small_model(name, files, CONFIG.format(instances=instances, more=more))

    def hosted_model(self, name: str, *, sleep_s: float = 0.0, instances: int = 1, more: str = "") -> Target:
        """The same by the project's hosted runtime, with a session that sleeps."""
        copy_runtime(self._version(name))
        files = {str(session_file("sleeping")): SESSION.format(sleep=_sleep(sleep_s))}
        return self._small_model(name, files, CONFIG.format(instances=instances, more=f"{HOSTED}\n{more}"))

    def _version(self, name: str) -> Path:
        return self.folder / "repository" / name / "1"

    def _small_model(self, name: str, files: dict[str, str], config: str) -> Target:
        version = self._version(name)
        version.mkdir(parents=True, exist_ok=True)
        (version.parent / "config.pbtxt").write_text(config)
        for file, text in files.items():
            (version / file).parent.mkdir(parents=True, exist_ok=True)
            (version / file).write_text(text)
        samples = self.folder / f"{name}.samples"
        samples.mkdir()
        x = np.arange(64 * 64, dtype=np.int32).reshape(64, 64)
        np.savez(samples / "samples.npz", allow_pickle=False, **{"x/x": x})
        return self._load(name, samples)

    def tiny_bert(self) -> Target:
        """Tiny BERT as the sweep builds and serves it online: ONNX, fp32."""
        asked = {"formats": ("onnx",), "precisions": ("fp32",), "accelerators": ("none",)}
        (model,) = plan(SweepOptions.model_validate(asked | {"generator": "client"}), self.site)
        (cell,) = model.plan.cells
        at = workplace(model.plugin, cell, self.site, "bench").model_copy(update={"logs": self.folder})
        built = build_cell(
            model.plugin, cell, "bench", at, make=lambda stage, request, at: stage.fn(request, at)
        )
        artifact = self.site.store.path(built.converted)
        interface = Interface.model_validate_json((artifact / "interface.json").read_text(encoding="utf-8"))
        repository = self.folder / "repository"
        write_repository(repository, "tiny_bert", cell.product.format, cell.dynamic, interface, artifact)
        return self._load("tiny_bert", self.site.store.path(built.samples))

    def _load(self, name: str, samples: Path) -> Target:
        self.client.load_model(name)
        known = self.running.model_dump(include={"grpc_url", "http_url", "shm_prefix"})
        endpoint = Endpoint(
            model=name, server="embedded", server_version=self.running.version, backend="hosted",
            server_log=self.running.log, load_s=0, first_request_ms=100, **known,
        )  # fmt: skip
        return Target(endpoint=endpoint, samples=samples, logs=self.folder, name=name)


def _sleep(seconds: float) -> str:
    return f"time.sleep({seconds})" if seconds else "pass"


@contextmanager
def serving(site: Site) -> Iterator[Bench]:
    """A server for as long as the block runs."""
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        (folder / "repository").mkdir()
        running = stack.enter_context(embedded.serve(site, folder / "repository", folder / "server.log"))
        client = stack.enter_context(triton.InferenceServerClient(running.grpc_url))
        yield Bench(site, folder, running, client)
