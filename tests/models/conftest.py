"""Fixtures of the model plug-ins' tests: the tiny variants, built once in the tests' store."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from servegrid.domain.plugins import Plugin, load_profile
from servegrid.domain.releases import load_releases
from servegrid.domain.root import ROOT
from servegrid.domain.server import ServerChoice
from servegrid.domain.values import ArtifactRef, Cell, Product
from servegrid.frameworks.plugin_steps import import_path
from servegrid.host import device_locks
from servegrid.host.process_environment import DEFAULTS
from servegrid.plan.matrix import expand
from servegrid.plan.models import load_model
from servegrid.plan.selection import Selection
from servegrid.servers import embedded
from servegrid.store.build import Workplace, build
from servegrid.store.site import Site, default_site
from tasks import convert, export, prepare, profile_data, reference


@pytest.fixture(scope="session", autouse=True)
def locks(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Locks of their own: these builds need not wait for what another worker of the tests measures."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(device_locks, "LOCKS", tmp_path_factory.mktemp("locks") / "devices")
        yield


@dataclass(frozen=True)
class Tiny:
    """One cell of a model's tiny variant; each artifact is built, or found, at its first use."""

    plugin: Plugin
    cell: Cell
    at: Workplace

    @cached_property
    def prepared(self) -> ArtifactRef:
        return build(prepare.request(self.plugin, self.cell.product, self.at.site), self.at)

    @cached_property
    def exported(self) -> ArtifactRef:
        return build(export.request(self.plugin, self.cell.product, self.prepared), self.at)

    @cached_property
    def converted(self) -> ArtifactRef:
        return self._convert(self.cell.product)

    def _convert(self, product: Product) -> ArtifactRef:
        made_of = convert.source(product)
        source = self._convert(made_of) if made_of else self.exported
        return build(convert.request(self.plugin, product, source, self.calibration), self.at)

    @cached_property
    def calibration(self) -> ArtifactRef | None:
        product = self.cell.product
        if not convert.calibrated(product):
            return None
        return build(profile_data.calibration(self.plugin, product, self.prepared), self.at)

    @cached_property
    def samples(self) -> ArtifactRef:
        return build(profile_data.request(self.plugin, self.cell, self.prepared), self.at)

    @cached_property
    def reference(self) -> ArtifactRef:
        return build(reference.request(self.plugin, self.cell, self.prepared, self.samples), self.at)

    def folder(self, ref: ArtifactRef) -> Path:
        return self.at.site.store.path(ref)


@pytest.fixture(scope="session")
def tiny_cell(store: Path, tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Tiny]:
    """The cell of a model, by default ONNX in fp32, on the CPU."""
    home = tmp_path_factory.mktemp("tiny")
    (home / "store").symlink_to(store)
    site: Site = default_site().model_copy(update={"home": home, "models": ROOT / "models"})

    def find(name: str, format_: str = "onnx", precision: str = "fp32") -> Tiny:
        plugin = load_model(site.models, name)
        (cell,) = expand(
            plugin.spec,
            "tiny",
            load_profile(site.profiles, "cpu"),
            embedded.capabilities(ServerChoice()),
            Selection.model_validate({"formats": (format_,), "precisions": (precision,)}),
            load_releases(),
        ).cells
        at = Workplace(
            site=site, plugin=plugin.folder, logs=home / "logs", profile="cpu", cell=cell.name, timeout_s=600
        )
        return Tiny(plugin, cell, at)

    return find


@pytest.fixture(scope="session")
def prepared(tiny_cell: Callable[..., Tiny]) -> Callable[[str], Path]:
    """The folder that a model's prepare.py made of its tiny variant."""

    def prepare_tiny(name: str) -> Path:
        tiny = tiny_cell(name)
        return tiny.folder(tiny.prepared)

    return prepare_tiny


@dataclass(frozen=True)
class Child:
    """Scripts in processes of their own, where frameworks may be, with a plug-in's folder as import path."""

    folder: Path

    def __call__(self, script: str | Path, *arguments: object) -> Any:
        """Run a script; the JSON document in its last output line."""
        return self.finish(self.start(script, *arguments))

    def start(
        self, script: str | Path, *arguments: object, threads: int | None = None
    ) -> subprocess.Popen[str]:
        """A script's text, or its file, as a running process."""
        environment = {
            **DEFAULTS,
            **os.environ,
            "PYTHONPATH": str(self.folder),
            "PYTHONDONTWRITEBYTECODE": "1",
        }
        if threads:
            environment["OMP_NUM_THREADS"] = str(threads)
        what = [str(script)] if isinstance(script, Path) else ["-c", script]
        command = [sys.executable, "-W", "ignore", *what, *map(str, arguments)]
        return subprocess.Popen(
            command, env=environment, text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE
        )

    def output(self, process: subprocess.Popen[str]) -> str:
        """What a process prints until it ends well."""
        output, errors = process.communicate(timeout=300)
        assert process.returncode == 0, errors
        return output

    def finish(self, process: subprocess.Popen[str]) -> Any:
        """The JSON document in the last line that a process prints."""
        return json.loads(self.output(process).splitlines()[-1])


@pytest.fixture(scope="session")
def child_in() -> Callable[[Path], Child]:
    """`child_in(folder)`: the same for a folder, where a module tests several plug-ins."""
    return Child


@pytest.fixture(scope="module")
def child(request: pytest.FixtureRequest) -> Child:
    """`child(script, *arguments)`: a script that may import from the folder PLUG_IN of the test's module."""
    return Child(request.module.PLUG_IN)


@pytest.fixture
def plug_in(request: pytest.FixtureRequest) -> Iterator[Callable[..., Any]]:
    """`plug_in(name)`: a file of the folder PLUG_IN of the test's module, loaded by path."""
    folder = request.module.PLUG_IN

    def load(name: str) -> ModuleType:
        spec = spec_from_file_location(f"plug_in_{name}", f"{folder}/{name}.py")
        assert spec is not None and spec.loader is not None
        module = module_from_spec(spec)
        spec.loader.exec_module(module)
        return module

    with import_path(folder):
        yield load
