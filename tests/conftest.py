"""Fixtures that several folders of tests share: a real server, and small artifacts to serve.

Frameworks stay out of the test process: ONNX files are written with `onnx.helper`, TorchScript files by a
subprocess.
"""

from __future__ import annotations

import os
import platform
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import psutil
import pytest
import tritonclient.grpc as triton
from onnx import helper
from tritonclient.utils import InferenceServerException, np_to_triton_dtype

from servegrid.domain.values import Endpoint, Format, Interface, Serving, Tensor
from servegrid.formats.repository import write_repository
from servegrid.host.cards import gpu_names
from servegrid.servers import embedded
from servegrid.servers.base import Running
from servegrid.store.site import Site, default_site

Arrays = dict[str, np.ndarray[Any, Any]]
TEST_SITE, FAILED = pytest.StashKey[Path](), pytest.StashKey[bool]()
PLACES = {
    **{f"SERVEGRID_{name.upper()}": name for name in ("home", "results", "sources")},
    **{"TMPDIR": "tmp", "PREFECT_HOME": "prefect", "KERAS_HOME": "keras"},
}
"""Variable -> the folder of the tests' site that it names."""
TOOLS = ("tritonserver", "perf-analyzer", f"libpython/{platform.python_version()}")


class Triton:
    """A running server, its repository, and what tests do with it."""

    def __init__(self, running: Running, repository: Path, process: psutil.Process) -> None:
        self.running = running
        self.repository = repository
        self.process = process
        self.client = triton.InferenceServerClient(running.grpc_url)

    def load(
        self, name: str, artifact: Path, interface: Interface, *, format_: Format = "onnx", **serving: Any
    ) -> str:
        """Write the repository of a hosted model and load it; by default dynamic, batches up to 8."""
        fields = {"batching": "dynamic", "max_batch_size": 8} | serving
        self.write(name, artifact, interface, format_=format_, serving=Serving.model_validate(fields))
        self.client.load_model(name)
        return name

    def write(
        self, name: str, artifact: Path, interface: Interface, *, serving: Serving, format_: Format = "onnx"
    ) -> None:
        """Write the repository of a model; it is not loaded."""
        write_repository(self.repository, name, format_, serving, interface, artifact)

    def ask(self, model: str, x: Arrays, client: Any = None) -> Arrays:
        """One request with all tensors in the message."""
        inputs = []
        for name, array in x.items():
            entry = triton.InferInput(name, array.shape, np_to_triton_dtype(array.dtype))
            entry.set_data_from_numpy(array)
            inputs.append(entry)
        result = (client or self.client).infer(model, inputs, client_timeout=60.0)
        return {output.name: result.as_numpy(output.name) for output in result.get_response().outputs}

    def refusal(self, name: str) -> tuple[str, str]:
        """What the server says when it is to load a model, to the caller and in its log."""
        start = len(self.log)
        with pytest.raises(InferenceServerException) as caught:
            self.client.load_model(name)
        return str(caught.value), self.log[start:]

    def statistics(self, model: str) -> Any:
        (entry,) = self.client.get_inference_statistics(model).model_stats
        return entry

    def endpoint(self, model: str) -> Endpoint:
        return Endpoint(
            grpc_url=self.running.grpc_url,
            http_url=self.running.http_url,
            model=model,
            shm_prefix=self.running.shm_prefix,
            server="embedded",
            server_version=self.running.version,
            server_log=self.running.log,
            backend="hosted",
            load_s=0.0,
            first_request_ms=0.0,
        )

    def stub(self, model: str) -> psutil.Process:
        """The one process that runs this loaded model."""
        place = f"{self.repository / model}/"
        (found,) = (p for p in self.stubs() if any(word.startswith(place) for word in p.cmdline()))
        return found

    def stubs(self) -> list[psutil.Process]:
        """The processes that run the loaded models; none once the server is gone."""
        try:
            return [p for p in self.process.children(recursive=True) if "python_backend" in p.name()]
        except psutil.NoSuchProcess:
            return []

    @property
    def log(self) -> str:
        return Path(self.running.log).read_text(errors="replace")


def _descendant(name: str, known: set[int]) -> psutil.Process:
    """The one new process of that name below this one."""
    children = psutil.Process().children(recursive=True)
    (found,) = (p for p in children if p.pid not in known and p.name() == name)
    return found


def pytest_configure(config: pytest.Config) -> None:
    """Tests have a site of their own, with the installed tools of this checkout's: no test changes what a
    sweep finds afterwards."""
    if "PYTEST_XDIST_WORKER" in os.environ:
        return  # the folders of the process that started this one
    installed, folder = default_site().home, Path(tempfile.mkdtemp(prefix="servegrid-tests-"))
    config.stash[TEST_SITE] = folder
    folder.chmod(0o755)  # some tests start programs of other users
    (folder / "tmp").mkdir()
    (folder / "tmp").chmod(0o1777)
    _link_tools(installed, folder / "home")
    os.environ.update({variable: str(folder / name) for variable, name in PLACES.items()})
    os.environ.setdefault("ORT_DISABLE_TELEMETRY", "1")  # or it keeps a device id in ~/.cache
    tempfile.tempdir = None  # it is looked up anew


def _link_tools(installed: Path, home: Path) -> None:
    for tool in (tool for tool in TOOLS if (installed / tool).exists()):
        (home / tool).parent.mkdir(parents=True, exist_ok=True)
        (home / tool).symlink_to(installed / tool)


def pytest_sessionfinish(session: pytest.Session, exitstatus: int) -> None:
    """After a failed test all files of the run are kept."""
    if exitstatus not in (pytest.ExitCode.OK, pytest.ExitCode.NO_TESTS_COLLECTED):
        session.config.stash[FAILED] = True


def pytest_unconfigure(config: pytest.Config) -> None:
    folder = config.stash.get(TEST_SITE, None)
    if folder and FAILED in config.stash:
        print(f"\nfiles of this run: {folder}")
    elif folder:
        shutil.rmtree(folder, ignore_errors=True)


def pytest_runtest_setup(item: pytest.Item) -> None:
    if item.get_closest_marker("gpu") and not gpu_names():
        pytest.skip("needs an NVIDIA GPU, and NVML sees none here")


@pytest.fixture(scope="session")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One artifact store for all tests that build models: a tiny variant is trained once. A developer may
    keep it between runs, in the folder that SERVEGRID_TEST_STORE names."""
    kept = os.environ.get("SERVEGRID_TEST_STORE")
    if kept:
        Path(kept).mkdir(parents=True, exist_ok=True)
        return Path(kept)
    base = tmp_path_factory.getbasetemp()
    several = "PYTEST_XDIST_WORKER" in os.environ  # then each worker's folder lies in one of the run
    store = (base.parent if several else base) / "store"
    store.mkdir(exist_ok=True)
    return store


@pytest.fixture(scope="session")
def site() -> Site:
    """The tests' site, with the checkout's models, profiles, server and perf_analyzer."""
    return default_site()


@pytest.fixture(scope="session")
def link_tools(site: Site) -> Callable[[Path], None]:
    """`link_tools(home)`: a home of one's own with the installed tools."""
    return lambda home: _link_tools(site.home, home)


@pytest.fixture(scope="session")
def ipv6() -> None:
    """Skips where this host has no IPv6 loopback."""
    try:
        with socket.socket(socket.AF_INET6) as probe:
            probe.bind(("::1", 0))
    except OSError as error:
        pytest.skip(f"this host has no IPv6 loopback: {error}")


@pytest.fixture(scope="session")
def alive() -> Callable[[Iterable[psutil.Process]], list[psutil.Process]]:
    """Those of some processes that still run after 5 s; a zombie, which nobody waited for, does not."""

    def runs(process: psutil.Process) -> bool:
        try:
            return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
        except psutil.NoSuchProcess:
            return False

    def still(processes: Iterable[psutil.Process]) -> list[psutil.Process]:
        found, deadline = list(processes), time.monotonic() + 5.0
        while (found := [p for p in found if runs(p)]) and time.monotonic() < deadline:
            time.sleep(0.02)
        return found

    return still


@pytest.fixture(scope="session")
def start(site: Site) -> Callable[[Path], Any]:
    """`with start(folder) as triton`: a server of one's own, with its repository and log in `folder`."""
    if problems := embedded.problems(site):
        pytest.skip("; ".join(problems))

    @contextmanager
    def serving(folder: Path) -> Iterator[Triton]:
        (folder / "repository").mkdir()
        known = {p.pid for p in psutil.Process().children(recursive=True)}
        with embedded.serve(site, folder / "repository", folder / "server.log") as running:
            server = Triton(running, folder / "repository", _descendant("tritonserver", known))
            with server.client:
                yield server

    return serving


@pytest.fixture(scope="session")
def server(start: Callable[[Path], Any], tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """A server that many tests share; each loads models of its own names."""
    with start(tmp_path_factory.mktemp("server")) as running:
        yield running
        for model in running.client.get_model_repository_index().models:
            if model.state == "READY":  # all at once: the server's end would take them in turn
                running.client.unload_model(model.name)


def tensors(*entries: tuple[str, str, Sequence[int]]) -> tuple[Tensor, ...]:
    return tuple(
        Tensor.model_validate({"name": name, "dtype": dtype, "shape": tuple(shape)})
        for name, dtype, shape in entries
    )


@pytest.fixture(scope="session")
def interface() -> Callable[..., Interface]:
    """`interface(inputs, outputs)`, each a list of (name, dtype, shape)."""
    return lambda inputs, outputs: Interface(inputs=tensors(*inputs), outputs=tensors(*outputs))


@pytest.fixture(scope="session")
def onnx_artifact(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Path]:
    """`onnx_artifact(interface, nodes, weights)`: a folder with a model.onnx of these nodes.

    Nodes are (operator, inputs, outputs, attributes); weights are arrays by name.
    """

    def make(io: Interface, nodes: Sequence[tuple[Any, ...]], weights: Arrays | None = None) -> Path:
        folder = tmp_path_factory.mktemp("artifact")
        values = [
            [
                helper.make_tensor_value_info(
                    t.name,
                    helper.np_dtype_to_tensor_dtype(np.dtype(t.dtype)),
                    [f"{t.name}_{i}" if axis == -1 else axis for i, axis in enumerate(t.shape)],
                )
                for t in group
            ]
            for group in (io.inputs, io.outputs)
        ]
        graph = helper.make_graph(
            [helper.make_node(kind, ins, outs, **more) for kind, ins, outs, more in nodes],
            "graph",
            *values,
            initializer=[onnx.numpy_helper.from_array(a, name) for name, a in (weights or {}).items()],
        )
        opsets = [helper.make_opsetid("", 17)]
        onnx.save(helper.make_model(graph, opset_imports=opsets, ir_version=9), folder / "model.onnx")
        (folder / "interface.json").write_text(io.model_dump_json())
        return folder

    return make


@pytest.fixture(scope="session")
def run_python() -> Callable[..., str]:
    """`run_python(script, *arguments)`: a script in a process of its own, where frameworks may be."""

    def run(script: str, *arguments: object) -> str:
        command = [sys.executable, "-W", "ignore", "-c", script, *map(str, arguments)]
        return subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True, timeout=120).stdout

    return run


@pytest.fixture(scope="session")
def wait_for() -> Callable[[Callable[[], Any], float], Any]:
    """`wait_for(condition, seconds)`: what the condition gives once it gives something true."""

    def wait(condition: Callable[[], Any], seconds: float) -> Any:
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            found = condition()
            if found:
                return found
            time.sleep(0.05)
        raise AssertionError(f"not within {seconds} s")

    return wait
