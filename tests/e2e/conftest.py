"""A Prefect server of our own for this folder's tests, and the `servegrid` command that uses it."""

from __future__ import annotations

import functools
import json
import os
import shutil
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from flows import local_server
from servegrid.domain.root import ROOT
from servegrid.store.site import Site, default_site

TEMPLATE = ROOT / "models" / "_template"


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
    def api(self) -> Api:
        """The Prefect server that its environment names."""
        return Api(url=self.env["PREFECT_API_URL"], env=self.env)

    @property
    def campaign(self) -> Path:
        """The folder of the latest campaign."""
        return max(self.site.results.iterdir())

    def rows(self) -> list[dict[str, Any]]:
        """The rows that are there by now."""
        paths = self.site.results.glob("*/rows.jsonl")
        return [json.loads(line) for path in paths for line in path.read_text().splitlines()]


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
def make_command_in(
    store: Path, link_tools: Callable[[Path], None], tmp_path_factory: pytest.TempPathFactory
) -> Callable[..., Command]:
    """The same in an environment that may have no Prefect server."""

    def make(base: dict[str, str], models: Path, *, own_store: bool = False) -> Command:
        root = tmp_path_factory.mktemp("site")
        home = root / "home"
        home.mkdir()
        if not own_store:
            (home / "store").symlink_to(store)
        link_tools(home)
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


@pytest.fixture(scope="session")
def edit() -> Callable[[Path, str, str], None]:
    """`edit(path, old, new)`: replace a text that is there."""

    def replace(path: Path, old: str, new: str) -> None:
        text = path.read_text()
        assert old in text
        path.write_text(text.replace(old, new))

    return replace


def _plugins(folder: Path) -> Path:
    model = folder / "tiny_mlp"
    shutil.copytree(TEMPLATE, model)
    spec = model / "model.yaml"
    spec.write_text(spec.read_text().replace("name: _template", "name: tiny_mlp"))
    return folder


@pytest.fixture
def command(make_command: Callable[..., Command], plugins: Path) -> Command:
    return make_command(plugins)
