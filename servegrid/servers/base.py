"""The interface of a provider of Triton servers, and the server that it gives."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Literal, Protocol

from servegrid.domain.errors import UserError
from servegrid.domain.server import ServerCapabilities, ServerChoice, ServerOptions
from servegrid.domain.values import Channel, Value
from servegrid.store.site import Site


class Running(Value):
    """A ready server.

    shm_prefix: the start of its shared memory's names; pid: the process that ends with the server, None on
    another host; models: how models get there: from the `repository` on disk, with each load request
    (`upload`), or not at all (`fixed`: it keeps what it has loaded).
    """

    grpc_url: str
    http_url: str
    version: str
    shm_prefix: str
    log: str
    provider: str
    pid: int | None
    channel: Channel = Channel()
    models: Literal["repository", "upload", "fixed"] = "repository"


class ServerProvider(Protocol):
    """The functions of a provider's module."""

    OPTIONS: ServerOptions

    def capabilities(self, choice: ServerChoice) -> ServerCapabilities:
        """What its server can do; raises UserError if the server does not answer."""

    def problems(self, site: Site, choice: ServerChoice) -> list[str]:
        """Why no server can be started here, each with what to do; empty when one can."""

    def serve(
        self, site: Site, repository: Path, log_path: Path, choice: ServerChoice
    ) -> AbstractContextManager[Running]:
        """A server for as long as the block runs, with none of our models loaded."""


def why_unusable(
    capabilities: Callable[[ServerChoice], ServerCapabilities], choice: ServerChoice
) -> list[str]:
    """The problem of a provider whose server has none once its capabilities are found."""
    try:
        capabilities(choice)
    except UserError as error:
        return [str(error)]
    return []
