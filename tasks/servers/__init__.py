"""Triton providers: one module a way to get a server, all of one shape, registered here by name."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from pathlib import Path
from typing import Protocol

from tritonclient.utils import InferenceServerException

from tasks.core.clock import work
from tasks.core.errors import StepError
from tasks.core.site import Site
from tasks.servers import embedded
from tasks.servers.base import Running


class ServerProvider(Protocol):
    """What a provider's module has."""

    TRITON_RELEASE: str
    """The release whose server it starts, as NGC numbers them."""
    BACKENDS: tuple[str, ...]
    """The backends that the server has, by Triton's names."""

    def problems(self, site: Site) -> list[str]:
        """Why no server can be started here, each with what to do; empty when one can."""

    def serve(self, site: Site, repository: Path, log_path: Path) -> AbstractContextManager[Running]:
        """A server for as long as the block runs: explicit model control, loopback, free ports."""


SERVERS: dict[str, ServerProvider] = {"embedded": embedded}


@contextmanager
def server(provider: str, site: Site, repository: Path, log_path: Path) -> Iterator[Running]:
    """A server by the provider's name; its start and stop are counted apart from a cell's stages."""
    with ExitStack() as stack:
        with work("server_start"):
            running = stack.enter_context(SERVERS[provider].serve(site, repository, log_path))
        try:
            yield running
        except InferenceServerException as error:
            raise StepError(f"the server did not answer: {error}", log=running.log) from error
        finally:
            with work("server_stop"):
                stack.close()
