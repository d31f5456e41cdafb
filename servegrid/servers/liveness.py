"""Tells an error of a client from the end of its server."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tritonclient.utils import InferenceServerException

from servegrid.domain.errors import StepError
from servegrid.domain.values import Endpoint
from servegrid.host import proc
from servegrid.servers.connection import connect

LIVE_S = 5.0


@contextmanager
def naming_a_lost_server(endpoint: Endpoint) -> Iterator[None]:
    """A StepError of the block becomes one that says that the server is gone, with the server's log, when the
    server no longer answers.

    Raises:
        StepError: the block failed.
    """
    try:
        yield
    except StepError as error:
        if _is_live(endpoint):
            raise
        log = endpoint.server_log
        raise StepError(f"the server is gone; its log is {log}\n{proc.tail(Path(log))}", log=log) from error


def _is_live(endpoint: Endpoint) -> bool:
    with connect(endpoint.grpc_url, endpoint.channel) as client:
        try:
            return bool(client.is_server_live(client_timeout=LIVE_S))
        except InferenceServerException:
            return False
