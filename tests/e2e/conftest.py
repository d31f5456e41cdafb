"""Prefect servers of our own for this folder's tests, one on SQLite, one on PostgreSQL with workers, and the
`servegrid` command beside them."""

from __future__ import annotations

import functools
import json
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml

from flows import local_server
from tasks.core import proc
from tasks.core.site import ROOT, Site, default_site

TEMPLATE = ROOT / "models" / "_template"


@dataclass(frozen=True)
class Command:
    """`servegrid` with an environment of its own; nothing is shared with the developer's folders."""

    site: Site
    env: dict[str, str]

    def start(self, *arguments: str, **options: Any) -> subprocess.Popen[str]:
        program = [str(Path(sys.executable).with_name("servegrid")), *arguments]
        of_test = {name: os.environ[name] for name in ("SERVEGRID_TEST", "TMPDIR") if name in os.environ}
        return subprocess.Popen(
            program,
            env=self.env | of_test,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
            **options,
        )

    def run(self, *arguments: str, timeout: float = 300) -> tuple[int, str]:
        process = self.start(*arguments)
        try:
            output, _ = process.communicate(timeout=timeout)
        except BaseException:  # the test is over, in whatever way: so is the command
            process.terminate()
            process.communicate()
            raise
        return process.returncode, output

    @property
    def campaign(self) -> Path:
        """The folder of the latest campaign."""
        return max(self.site.results.iterdir())

    def rows(self) -> list[dict[str, Any]]:
        """The rows that are there by now."""
        paths = self.site.results.glob("*/rows.jsonl")
        return [json.loads(line) for path in paths for line in path.read_text().splitlines()]


@dataclass(frozen=True)
class Api:
    """A running Prefect server."""

    url: str
    env: dict[str, str]

    def post(self, path: str, body: dict[str, Any]) -> Any:
        request = urllib.request.Request(
            f"{self.url}/{path}", json.dumps(body).encode(), {"Content-Type": "application/json"}
        )
        with urllib.request.urlopen(request, timeout=30) as answer:
            return json.load(answer)

    def task_runs(self, tag: str | None = None, at_least: int = 1) -> list[dict[str, Any]]:
        """Every task run (below the flow runs of a tag), once there are so many and all are final: they and
        their states come a little late."""
        body: dict[str, Any] = {"sort": "EXPECTED_START_TIME_ASC", "limit": 200}
        if tag:
            body["flow_runs"] = {"tags": {"all_": [tag]}}
        deadline = time.monotonic() + 30
        while True:
            runs: list[dict[str, Any]] = self.post("task_runs/filter", body)
            final = all(r["state"] and r["state"]["type"] in ("COMPLETED", "FAILED", "CRASHED") for r in runs)
            if (len(runs) >= at_least and final) or time.monotonic() > deadline:
                return runs
            time.sleep(0.5)


PROFILES = ("test-a", "test-b", "test-c")
"""Test profiles: each stands for a card, and is this machine's CPU."""
POSTGRES = sorted(Path("/usr/lib/postgresql").glob("*/bin"))


class Grid:
    """A Prefect server on PostgreSQL, a worker for each test profile and one for campaigns.

    Each is started when it is first asked for, and can be killed and started again.
    """

    def __init__(self, command: Command, database: str, root: Path) -> None:
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
    def api(self) -> Api:
        return Api(url=self.command.env["PREFECT_API_URL"], env=self.command.env)

    def start_server(self) -> None:
        """Start it, on the port that it had before."""
        self._running["server"] = stack = ExitStack()
        env = {**local_server.settings(Site.model_construct(home=self.root)), **self._env}
        url = stack.enter_context(local_server.running(self.root / "server.log", env, self._port))
        self._port = int(url.removesuffix("/api").rpartition(":")[2])
        self.command.env.update(env, PREFECT_API_URL=url)

    def start_worker(self, pool: str) -> None:
        args = [sys.executable, "-m", "prefect", "worker", "start", "--pool", pool, "--limit", "1"]
        self._running[pool] = stack = ExitStack()
        log_path = self.root / f"{pool}.log"
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
    postgres: str, make_command_in: Callable[..., Command], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Callable[[Path], Grid]]:
    """A grid on a folder of models, with a store of its own and the test profiles."""
    root = tmp_path_factory.mktemp("grid")
    (root / "profiles").mkdir()
    for name in PROFILES:
        text = (ROOT / "gpu_profiles" / "cpu.yaml").read_text()
        text = text.replace("name: cpu", f"name: {name}").replace("gpu-cpu", f"gpu-{name}")
        (root / "profiles" / f"{name}.yaml").write_text(text.replace("this host's CPU", "a test's CPU"))
    made: list[Grid] = []

    def make(models: Path) -> Grid:
        command = make_command_in(dict(os.environ), models, own_store=True)
        command.env["SERVEGRID_PROFILES"] = str(root / "profiles")
        made.append(Grid(command, postgres, root))
        return made[-1]

    yield make
    for grid in made:
        grid.stop()


@pytest.fixture(scope="session")
def grid(make_grid: Callable[[Path], Grid], tmp_path_factory: pytest.TempPathFactory) -> Grid:
    """Workers of every test profile, with the pools and deployments of the project, one small model and the
    project's own."""
    models = _plugins(tmp_path_factory.mktemp("models"))
    spec = models / "tiny_mlp" / "model.yaml"
    onnx = "onnx: {export: onnx, precisions: [fp32]"
    spec.write_text(spec.read_text().replace(onnx, f"{onnx}, accelerators: [none, trt]"))
    for path in (ROOT / "models").glob("[!_]*/model.yaml"):
        (models / path.parent.name).symlink_to(path.parent)
    found = make_grid(models)
    code, output = found.command.run("pools", "create")
    assert code == 0, output
    # The project's deployments, with the test profiles in the place of the cards.
    data = yaml.safe_load((ROOT / "deployments" / "prefect.yaml").read_text())
    (cpu,) = [d for d in data["deployments"] if d["name"] == "cpu"]
    sweeps = [d for d in data["deployments"] if d["work_pool"]["name"] == "campaigns"]
    tests = [cpu | {"name": p, "work_pool": cpu["work_pool"] | {"name": f"gpu-{p}"}} for p in PROFILES]
    path = found.root / "prefect.yaml"
    path.write_text(yaml.safe_dump(data | {"deployments": [*sweeps, *tests]}))
    found.prefect("deploy", "--all", "--prefect-file", str(path))
    for pool in ("campaigns", *(f"gpu-{profile}" for profile in PROFILES)):
        found.start_worker(pool)
    return found


@pytest.fixture(scope="session")
def api(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Api]:
    home = tmp_path_factory.mktemp("prefect")
    env = {**os.environ, **local_server.settings(Site.model_construct(home=home))}
    env["PREFECT_LOGGING_EXTRA_LOGGERS"] = "servegrid"
    with local_server.running(home / "server.log", env) as url:
        yield Api(url=url, env={**env, "PREFECT_API_URL": url})


@pytest.fixture(scope="session")
def make_command(api: Api, make_command_in: Callable[..., Command]) -> Callable[..., Command]:
    """`servegrid` on a folder of models, without results, with the tests' shared store or one of its own."""

    return functools.partial(make_command_in, api.env)


@pytest.fixture(scope="session")
def make_command_in(store: Path, tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Command]:
    """The same in an environment that may have no Prefect server."""

    def make(base: dict[str, str], models: Path, *, own_store: bool = False) -> Command:
        root = tmp_path_factory.mktemp("site")
        home = root / "home"
        home.mkdir()
        if not own_store:
            (home / "store").symlink_to(store)
        for tool in ("tritonserver", "perf-analyzer"):
            if (default_site().home / tool).exists():
                (home / tool).symlink_to(default_site().home / tool)
        site = default_site().model_copy(
            update={"home": home, "results": root / "results", "models": models, "sources": home / "sources"}
        )
        env = base | {
            "SERVEGRID_HOME": str(home),
            "SERVEGRID_RESULTS": str(site.results),
            "SERVEGRID_MODELS": str(models),
            "SERVEGRID_SOURCES": str(site.sources),
        }
        return Command(site=site, env=env)

    return make


@pytest.fixture(scope="session")
def make_plugins() -> Callable[[Path], Path]:
    return _plugins


@pytest.fixture
def plugins(tmp_path: Path) -> Path:
    """A folder with one model, made from the template as a newcomer would; a test may edit it."""
    return _plugins(tmp_path / "models")


def _plugins(folder: Path) -> Path:
    model = folder / "tiny_mlp"
    shutil.copytree(TEMPLATE, model)
    spec = model / "model.yaml"
    spec.write_text(spec.read_text().replace("name: _template", "name: tiny_mlp"))
    return folder


@pytest.fixture
def command(make_command: Callable[..., Command], plugins: Path) -> Command:
    return make_command(plugins)
