"""NVIDIA's Triton image of a cell's release, started by the docker CLI.

It has the native backends. Its Python backend has no framework, so it hosts no model.
"""

from __future__ import annotations

import functools
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from servegrid.domain.errors import StepError, unknown
from servegrid.domain.releases import image, load_releases
from servegrid.domain.server import ServerCapabilities, ServerChoice, ServerOptions
from servegrid.formats import FORMATS
from servegrid.host import containers
from servegrid.host.cards import card_uuid
from servegrid.host.containers import Container
from servegrid.host.process_environment import DEFAULTS
from servegrid.servers.base import Running
from servegrid.servers.launch import Start, shared_memory_options, started
from servegrid.store.site import Site

OPTIONS = ServerOptions(takes=("triton_release",))
BACKENDS: tuple[str, ...] = ("onnxruntime", "pytorch", "tensorrt", "tensorflow")
PORTS = {"http": 8000, "grpc": 8001, "metrics": 8002}
"""Triton's own ports, inside."""
READY_S = 300.0  # a large image's first start on a card


def capabilities(choice: ServerChoice) -> ServerCapabilities:
    """The newest known release, or the wanted one; for a format whose backend later images lack, the last
    release that has it.

    Raises:
        UserError: the wanted release is not one of triton_releases.yaml.
    """
    known, last = load_releases().releases, load_releases().last_tensorflow
    release = choice.triton_release or max(known)
    if release not in known:
        raise unknown("Triton release (in triton_releases.yaml)", release, known)
    older = {name: last for name, format_ in FORMATS.items() if format_.native.name == "tensorflow"}
    return ServerCapabilities(release=release, backends=BACKENDS, releases=older if last < release else {})


def problems(site: Site, choice: ServerChoice) -> list[str]:
    """Why no container can be started here, each with what to do."""
    try:
        containers.ask("version", "--format", "{{.Server.Version}}")
    except StepError as error:
        return [f"docker: {error} (the engine must be this host's)"]
    if choice.device_kind == "gpu" and card_uuid() is None:
        return ["docker: no NVIDIA card here to give to the container"]
    return []


@contextmanager
def serve(site: Site, repository: Path, log_path: Path, choice: ServerChoice) -> Iterator[Running]:
    """A ready server on `repository`, with no model loaded; its container is gone when the block ends.

    Raises:
        StepError: the image cannot be had, or the server ended or was not ready within READY_S.
    """
    containers.remove_dead()
    assert choice.triton_release is not None  # of the cell
    start, name = Start.fresh(), containers.fresh_name()
    container = Container(
        image=image(choice.triton_release),
        name=name,
        files=(repository, site.store.root),  # the repository's links lead to the store
        ports={PORTS[kind]: port for kind, port in start.ports.items()},
        env={variable: os.environ.get(variable, value) for variable, value in DEFAULTS.items()},
        gpu=card_uuid() if choice.device_kind == "gpu" else None,
    )
    containers.pull(container.image, log_path)
    options = [*start.options(repository), *_shared_memory(container.image)]
    with started(
        containers.argv(container, ["tritonserver", *options]),
        start,
        provider="docker",
        log_path=log_path,
        ready_s=READY_S,
        container=name,
        pid=lambda _: containers.pid(name),
    ) as running:
        yield running


@functools.cache
def _shared_memory(image: str) -> tuple[str, ...]:
    """Of this image. `tritonserver --help` exits with 1."""
    probe = Container(image=image, name=containers.fresh_name())
    return shared_memory_options(containers.output(probe, ["tritonserver", "--help"]))
