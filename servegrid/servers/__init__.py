"""Providers of a Triton server: one module for each way to get one, all with the same functions."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from tritonclient.utils import InferenceServerException

from servegrid.domain.errors import StepError
from servegrid.domain.server import ServerChoice
from servegrid.host.stage_timer import work
from servegrid.servers import docker, embedded, installed, remote
from servegrid.servers.base import Running, ServerProvider
from servegrid.store.site import Site

SERVERS: dict[str, ServerProvider] = {
    "embedded": embedded,
    "installed": installed,
    "docker": docker,
    "remote": remote,
}


@contextmanager
def server(choice: ServerChoice, site: Site, repository: Path, log_path: Path) -> Iterator[Running]:
    """A server of the chosen provider; its start and stop are timed apart from a cell's stages.

    Raises:
        StepError: the server did not start, or did not answer.
    """
    with ExitStack() as stack:
        with work("server_start"):
            running = stack.enter_context(SERVERS[choice.name].serve(site, repository, log_path, choice))
        try:
            yield running
        except InferenceServerException as error:
            raise StepError(f"the server did not answer: {error}", log=running.log) from error
        finally:
            with work("server_stop"):
                stack.close()
