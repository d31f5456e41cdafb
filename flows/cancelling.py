"""A campaign in its own process that is cancelled in Prefect's UI: no worker is there to stop it."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from contextvars import copy_context
from uuid import UUID

import httpx
from prefect import runtime
from prefect.client.orchestration import get_client
from prefect.client.schemas.objects import StateType
from prefect.exceptions import PrefectException

ASK_S = 2.0
CANCELLED = (StateType.CANCELLING, StateType.CANCELLED)


class CancelledError(Exception):
    """The campaign's own flow run was cancelled."""


@contextmanager
def heeding_cancellation() -> Iterator[None]:
    """While the block runs, in the main thread, the cancellation of this flow run ends it as Ctrl-C would.

    A run of a deployment is left to its worker.

    Raises:
        CancelledError: it was cancelled.
    """
    if runtime.deployment.id:
        yield
        return
    run, cancelled, done = UUID(runtime.flow_run.id), threading.Event(), threading.Event()
    ending = threading.Lock()  # no signal may come after the block

    def watch() -> None:
        with get_client(sync_client=True) as client:
            while not done.wait(ASK_S):
                with suppress(httpx.HTTPError, PrefectException):
                    state = client.read_flow_run(run).state
                    with ending:
                        if state and state.type in CANCELLED and not done.is_set():
                            cancelled.set()
                            os.kill(os.getpid(), signal.SIGINT)
                            return

    # In a context of its own, which knows the address of the API.
    threading.Thread(target=copy_context().run, args=(watch,), daemon=True).start()
    try:
        yield
        with ending:
            done.set()
    except KeyboardInterrupt:
        if cancelled.is_set():
            raise CancelledError from None
        raise
    finally:
        done.set()
