"""A Prefect server on PostgreSQL with workers, as a team would have it: for campaigns on several profiles."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
import yaml

from flows import local_server
from servegrid.domain.root import ROOT
from servegrid.host import proc
from servegrid.store.site import Site

PROFILES = ("test-a", "test-b", "test-c")
"""Test profiles: each stands for a card, and is this machine's CPU."""
SIMULATED = "simulated-card"
"""A profile whose cells only wait (`simulated_cells.py`): as many cards of it as there are workers."""
POSTGRES = sorted(Path("/usr/lib/postgresql").glob("*/bin"))


class Grid:
    """A Prefect server on PostgreSQL, a worker for each test profile and one for campaigns.

    Each is started at its first use, and can be killed and started again.
    """

    def __init__(self, command: Any, database: str, root: Path) -> None:
        self.command = command
        self.root = root
        self._env = {
            "PREFECT_API_DATABASE_CONNECTION_URL": database,
            "PREFECT_WORKER_QUERY_SECONDS": "1",
            "SERVEGRID_HOME": command.env["SERVEGRID_HOME"],  # by which its processes are found
            "PREFECT_LOGGING_EXTRA_LOGGERS": "servegrid",
        }
        self._running: dict[str, ExitStack] = {}
        self._port = 0
        self.start_server()
        self.prefect("work-pool", "ls")

    @property
    def api(self) -> Any:
        return self.command.api

    def start_server(self) -> None:
        """Start it, on the port that it had before."""
        self._running["server"] = stack = ExitStack()
        env = {**local_server.settings(Site.model_construct(home=self.root)), **self._env}
        url = stack.enter_context(local_server.running(self.root / "server.log", env, self._port))
        self._port = int(url.removesuffix("/api").rpartition(":")[2])
        self.command.env.update(env, PREFECT_API_URL=url)

    def start_worker(self, pool: str, name: str | None = None) -> None:
        """Start a worker of the pool; `name` tells it from others of one pool."""
        args = [sys.executable, "-m", "prefect", "worker", "start", "--pool", pool, "--limit", "1"]
        self._running[name or pool] = stack = ExitStack()
        log_path = self.root / f"{name or pool}.log"
        stack.enter_context(proc.running(args, log_path=log_path, env=self.command.env, stop_s=15))

    def lost(self, name: str) -> None:
        """It was killed: clear away what is left of it."""
        self._running.pop(name).close()

    def stop(self) -> None:
        """The workers at once, then the server."""
        server = self._running.pop("server")
        with ThreadPoolExecutor() as pool:
            list(pool.map(ExitStack.close, self._running.values()))
        server.close()

    def prefect(self, *arguments: str) -> str:
        args = [sys.executable, "-m", "prefect", "--no-prompt", *arguments]
        done = subprocess.run(
            args, env=self.command.env, cwd=ROOT, capture_output=True, text=True, timeout=120
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    def flow_runs(self, **body: Any) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = self.api.post("flow_runs/filter", {"flow_runs": body})
        return found

    def campaign(self, name: str) -> Path:
        return self.command.site.results / name


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@pytest.fixture(scope="session")
def postgres() -> Iterator[str]:
    """A PostgreSQL server with an empty database; SQLAlchemy's URL of it. It does not run as root."""
    if not POSTGRES:
        pytest.skip("PostgreSQL is not installed (Debian: apt-get install postgresql)")
    root = os.getuid() == 0
    user = ["setpriv", "--reuid=postgres", "--regid=postgres", "--clear-groups"] if root else []
    with tempfile.TemporaryDirectory(prefix="servegrid-postgres-") as name:
        folder, port = Path(name), free_port()
        if root:
            shutil.chown(folder, "postgres", "postgres")
        make = ["initdb", "--pgdata", name + "/data", "--auth=trust", "--username=servegrid", "--no-sync"]
        subprocess.run([*user, POSTGRES[-1] / make[0], *make[1:]], check=True, capture_output=True)
        options = [f"-cport={port}", "-clisten_addresses=127.0.0.1", f"-cunix_socket_directories={name}"]
        args = [*user, str(POSTGRES[-1] / "postgres"), "-D", name + "/data", *options, "-cfsync=off"]
        with proc.running(args, log_path=folder / "postgres.log"):
            ready = [str(POSTGRES[-1] / "pg_isready"), "--host=127.0.0.1", f"--port={port}", "--quiet"]
            for _ in range(200):
                if subprocess.run(ready).returncode == 0:
                    break
                time.sleep(0.1)
            yield f"postgresql+asyncpg://servegrid@127.0.0.1:{port}/postgres"


@pytest.fixture(scope="session")
def make_grid(
    postgres: str, make_command_in: Callable[..., Any], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Callable[[Path], Grid]]:
    """A grid on a folder of models, with a store of its own and the test profiles."""
    root = tmp_path_factory.mktemp("grid")
    (root / "profiles").mkdir()
    for name in (*PROFILES, SIMULATED):
        text = (ROOT / "gpu_profiles" / "cpu.yaml").read_text()
        text = text.replace("name: cpu", f"name: {name}").replace("gpu-cpu", f"gpu-{name}")
        (root / "profiles" / f"{name}.yaml").write_text(text.replace("this host's CPU", "a test's CPU"))
    made: list[Grid] = []

    def make(models: Path) -> Grid:
        command = make_command_in(dict(os.environ), models, own_store=True)
        command.env["SERVEGRID_PROFILES"] = str(root / "profiles")
        paths = [str(Path(__file__).parent), *filter(None, [command.env.get("PYTHONPATH")])]
        command.env["PYTHONPATH"] = os.pathsep.join(paths)
        made.append(Grid(command, postgres, root))
        return made[-1]

    yield make
    for grid in made:
        grid.stop()


@pytest.fixture(scope="session")
def grid(
    make_grid: Callable[[Path], Grid],
    make_plugins: Callable[[Path], Path],
    tmp_path_factory: pytest.TempPathFactory,
) -> Grid:
    """Workers of every test profile, with the pools and deployments of the project, one small model and the
    project's own."""
    models = make_plugins(tmp_path_factory.mktemp("models"))
    spec = models / "tiny_mlp" / "model.yaml"
    onnx = "onnx: {export: onnx, precisions: [fp32]"
    spec.write_text(spec.read_text().replace(onnx, f"{onnx}, accelerators: [none, trt]"))
    # A model of eight cells, for simulated cards.
    shutil.copytree(models / "tiny_mlp", models / "of_eight_cells")
    text = spec.read_text().replace("name: tiny_mlp", "name: of_eight_cells")
    delay = "max_queue_delay_us: 1\n"
    text = text.replace(delay, f"{delay}      instances: [1, 2, 3, 4]\n")
    (models / "of_eight_cells" / "model.yaml").write_text(text)
    for path in (ROOT / "models").glob("[!_]*/model.yaml"):
        (models / path.parent.name).symlink_to(path.parent)
    found = make_grid(models)
    code, output = found.command.run("pools", "create")
    assert code == 0, output
    data = yaml.safe_load((ROOT / "deployments" / "prefect.yaml").read_text())
    sweeps = [d for d in data["deployments"] if d["work_pool"]["name"] == "campaigns"]
    pool = sweeps[0]["work_pool"] | {"name": f"gpu-{SIMULATED}"}
    simulated = {"name": SIMULATED, "entrypoint": "simulated_cells.qualify", "work_pool": pool}
    path = found.root / "prefect.yaml"
    path.write_text(yaml.safe_dump(data | {"deployments": [*sweeps, simulated]}))
    found.prefect("deploy", "--all", "--prefect-file", str(path))
    for pool in ("campaigns", *(f"gpu-{profile}" for profile in PROFILES)):
        found.start_worker(pool)
    return found
