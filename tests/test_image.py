"""The packages installed into an image on top of its base, and the files that make and run images."""

from __future__ import annotations

import os
import re
import runpy
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml

from servegrid.domain.root import ROOT
from servegrid.host.environment import ALTERNATIVES

SCRIPT = ROOT / "deployments" / "image_requirements.py"
COMPOSE = ROOT / "deployments" / "compose.yaml"


def base(folder: Path, **distributions: str) -> Path:
    """A folder with these distributions, as pip leaves them."""
    for name, version in distributions.items():
        info = folder / f"{name}-{version}.dist-info"
        info.mkdir(parents=True)
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
    return folder


def split(tmp_path: Path, found: Path, extras: str) -> tuple[list[str], list[str]]:
    """Requirements and constraints for a base with what lies in `found`."""
    files = [str(ROOT / "pyproject.toml"), str(ROOT / "constraints.txt")]
    command = [sys.executable, "-S", str(SCRIPT), *files, "--extras", extras, "--output", str(tmp_path)]
    env = {"PYTHONPATH": str(found), "PATH": os.environ["PATH"]}
    done = subprocess.run(command, env=env, capture_output=True, text=True, timeout=30)
    assert done.returncode == 0, done.stderr
    return tuple(
        (tmp_path / f"{n}.txt").read_text().split("\n")[:-1] for n in ("requirements", "constraints")
    )  # type: ignore[return-value]


def test_an_empty_base_gets_the_projects_requirements_and_pins(tmp_path: Path) -> None:
    wanted, pins = split(tmp_path, tmp_path / "none", "torch,onnx")
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    extras = project["optional-dependencies"]
    assert wanted == [*project["dependencies"], *extras["torch"], *extras["onnx"]]
    assert pins == (ROOT / "constraints.txt").read_text().split()


def test_a_framework_of_the_base_is_neither_replaced_nor_overwritten(tmp_path: Path) -> None:
    found = base(tmp_path / "base", torch="2.9.0a0+nv25.10", tensorflow="2.17.0+nv25.2", NumPy="1.26.4")
    wanted, pins = split(tmp_path, found, "torch,tensorflow")
    names = {re.split(r"[<>=\[]", line)[0] for line in wanted}
    assert {"transformers", "monai", "keras", "numpy"} <= names
    assert not names & {"torch", "tensorflow", "tensorflow-cpu"}
    by_name = dict(pin.split("==") for pin in pins)
    assert by_name["torch"] == "2.9.0a0+nv25.10"
    assert by_name["tensorflow"] == "2.17.0+nv25.2"
    assert "tensorflow-cpu" not in by_name
    assert "numpy" not in by_name  # the base's stays where it is new enough
    assert "prefect" in by_name


def test_every_name_of_a_framework_is_known_to_the_script() -> None:
    known = runpy.run_path(str(SCRIPT))["FRAMEWORKS"]
    for package, names in ALTERNATIVES.items():
        cuda = {name for name in names if "-rtx-" not in name}  # RTX is another package
        assert cuda <= set(known[package]), package


def test_an_unknown_extra_is_refused(tmp_path: Path) -> None:
    files = [str(ROOT / "pyproject.toml"), str(ROOT / "constraints.txt")]
    command = [sys.executable, str(SCRIPT), *files, "--extras", "torhc", "--output", str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=30)
    assert done.returncode == 1
    assert "unknown extra 'torhc'; pyproject.toml has" in done.stderr


def test_files_that_the_dockerfile_copies_are_in_its_context() -> None:
    text = (ROOT / "Dockerfile").read_text()
    allowed = [line[1:] for line in (ROOT / ".dockerignore").read_text().splitlines() if line.startswith("!")]
    copied = [word for line in re.findall(r"^COPY (?!--from)(.*)", text, re.M) for word in line.split()[:-1]]
    assert sorted(copied) == sorted(allowed)
    assert all((ROOT / name).exists() for name in copied)


@pytest.fixture(scope="module")
def compose() -> dict[str, Any]:
    found: dict[str, Any] = yaml.safe_load(COMPOSE.read_text())
    return found


def test_compose_file_is_valid_for_docker_compose() -> None:
    plugin = shutil.which("docker") and subprocess.run(["docker", "compose", "version"], capture_output=True)
    if not plugin or plugin.returncode:
        pytest.skip("no `docker compose` here (Debian 13: docker-compose)")
    command = ["docker", "compose", "--file", str(COMPOSE), "config", "--quiet"]
    env = {**os.environ, "POSTGRES_PASSWORD": "x"}
    done = subprocess.run(command, env=env, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr


def test_compose_file_has_its_references_and_opens_loopback_only(compose: dict[str, Any]) -> None:
    services = compose["services"]
    assert {"prefect", "postgres", "worker", "triton"} <= set(services)
    for name, service in services.items():
        assert set(service.get("depends_on", {})) <= set(services), name
        assert all(port.startswith("127.0.0.1:") for port in service.get("ports", ())), name
        for volume in service.get("volumes", ()):
            source = volume.partition(":")[0]
            assert source.startswith("/") or source in compose["volumes"], volume
    assert not re.search(r"PASSWORD: (?!\$\{)", COMPOSE.read_text())  # no secret is written here
    context = (COMPOSE.parent / services["worker-image"]["build"]["context"]).resolve()
    assert (context / "Dockerfile").is_file()
    arguments = set(re.findall(r"^ARG (\w+)", (ROOT / "Dockerfile").read_text(), re.M))
    assert set(services["worker-image"]["build"]["args"]) <= arguments
