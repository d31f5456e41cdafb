"""A Triton that runs already on any host, attached over gRPC and left in the state found.

With explicit model control a cell's model is sent with the request that loads it, so the server needs no
repository of ours. Without, only a model that is loaded already can be measured, as it is.
"""

from __future__ import annotations

import contextlib
import logging
import os
import sys
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tritonclient.utils import InferenceServerException

from servegrid.domain.errors import StepError, UnsupportedError, UserError
from servegrid.domain.releases import release_of
from servegrid.domain.server import ServerCapabilities, ServerChoice, ServerOptions
from servegrid.host import proc
from servegrid.servers.base import Running, why_unusable
from servegrid.servers.connection import connect
from servegrid.servers.control import unload
from servegrid.servers.probe import Probed, probe
from servegrid.store.site import Site

log = logging.getLogger("servegrid")

OPTIONS = ServerOptions(takes=("url", "ca_file", "headers_file", "triton_release"), needs=("url",))
UNLOAD_S = 30.0
REQUEST_BYTES = 2**31 - 2**20
"""A protobuf message is smaller than 2 GiB (protobuf, "Encoding", size limits); the config goes along."""
SLEEP = ("-S", "-E", "-c", "import signal; signal.pause()")


def capabilities(choice: ServerChoice) -> ServerCapabilities:
    """What the server of `choice.url` can do now.

    Raises:
        UserError: it does not answer, or its release is not known.
    """
    found = probe(choice)
    return ServerCapabilities(
        release=release_of(found.version, str(choice.url), choice.triton_release),
        backends=found.backends,
        loads=found.control,
        loaded=found.loaded,
        shared_memory=found.shared_memory,
        protocols=("grpc",),
    )


def problems(site: Site, choice: ServerChoice) -> list[str]:
    """Why the server cannot be used."""
    return why_unusable(capabilities, choice)


@contextmanager
def serve(site: Site, repository: Path, log_path: Path, choice: ServerChoice) -> Iterator[Running]:
    """The server, with no model of `repository` loaded; the models that we load are unloaded when the block
    ends.

    Raises:
        StepError: it does not answer any more, or has a model of that name, which would be replaced.
    """
    try:
        found = probe(choice)
    except UserError as error:
        raise StepError(str(error), log=str(log_path)) from error
    ours = [path.name for path in repository.iterdir()]
    if taken := set(ours) & set(found.loaded) if found.control else set():
        raise StepError(
            f"{choice.url} has {', '.join(sorted(taken))} loaded already, and would lose it: unload it there",
            log=str(log_path),
        )
    _note(choice, found, log_path)
    prefix = f"servegrid_{uuid.uuid4().hex[:8]}_"
    # However we end, the supervisor of this process removes the regions that the load generators made.
    with proc.running([sys.executable, *SLEEP], log_path=log_path, shm_prefix=prefix):
        try:
            yield Running(
                grpc_url=choice.address,
                http_url="",
                version=found.version,
                shm_prefix=prefix,
                log=str(log_path),
                provider="remote",
                pid=None,
                channel=choice.channel,
                models="upload" if found.control else "fixed",
            )
        finally:
            if found.control:
                _unload(choice, ours)


def uploads(model: Path) -> dict[str, bytes]:
    """The files of a model's folder for a load request: place below the folder -> content.

    Raises:
        UnsupportedError: they are larger than a request may be.
    """
    files: dict[str, bytes] = {}
    for folder, _, names in os.walk(model, followlinks=True):
        for name in names:
            path = Path(folder) / name
            if path.name != "config.pbtxt":  # the request has the config itself
                files[f"file:{path.relative_to(model).as_posix()}"] = path.read_bytes()
    if (size := sum(map(len, files.values()))) > REQUEST_BYTES:
        raise UnsupportedError(
            f"the model has {size / 1e9:.1f} GB; the request that loads it on a remote server carries at "
            f"most {REQUEST_BYTES / 1e9:.1f} GB"
        )
    return files


def _note(choice: ServerChoice, found: Probed, log_path: Path) -> None:
    """Write the findings into a log in place of the server's own, which lies on its host."""
    lines = [f"attached to Triton {found.version} at {choice.url}", *found.lacks]
    log_path.parent.mkdir(parents=True, exist_ok=True)
    log_path.write_text("\n".join([*lines, "its log is on its host", ""]), encoding="utf-8")
    for line in lines:
        log.info("%s", line)


def _unload(choice: ServerChoice, models: list[str]) -> None:
    with (
        connect(choice.address, choice.channel) as client,
        contextlib.suppress(InferenceServerException),  # it no longer answers: nothing to leave behind
    ):
        for model in models:
            unload(client, model, timeout_s=UNLOAD_S)
