"""A Prefect API for one command: the one that PREFECT_API_URL names, untouched, or one of our own.

Ours listens on loopback for as long as the command runs and keeps its database below the site's home.
Prefect reads most of its settings when it is imported, so nothing here imports it at the top; nor anything
else that a command's `--help` has to wait for.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path

from servegrid.domain.errors import UserError
from servegrid.host.process_environment import drop_socks_proxies
from servegrid.store.site import Site

READY_S = 90.0
DRAIN_S = 10.0
LEAST_FREE_BYTES = 16 * 2**20
HINTS = {
    "CERTIFICATE_VERIFY_FAILED": "PREFECT_API_SSL_CERT_FILE",
    "No such file": "PREFECT_API_SSL_CERT_FILE",
    "401": "PREFECT_API_AUTH_STRING",
    "403": "PREFECT_CLIENT_CUSTOM_HEADERS",
}
"""Words of a failure -> the setting of Prefect's that is probably wrong."""


def settings(site: Site) -> dict[str, str]:
    """Environment of a Prefect that is ours: own home, quiet, nothing sent anywhere."""
    return {
        "PREFECT_HOME": str(site.home / "prefect"),
        "PREFECT_SERVER_ANALYTICS_ENABLED": "false",
        # Between two calls lies a measurement: a connection that the server has closed meanwhile
        # costs a retry, 2 s of waiting.
        "PREFECT_SERVER_API_KEEPALIVE_TIMEOUT": "3600",
        "PREFECT_LOGGING_SERVER_LEVEL": "WARNING",
        "DO_NOT_TRACK": "1",
    }


def prepare_environment(site: Site) -> None:
    """Set what Prefect reads when it is imported; to be called before that.

    Raises:
        UserError: the home cannot be written.
    """
    os.environ.setdefault("PREFECT_LOGGING_EXTRA_LOGGERS", "servegrid")
    # The command shows its own lines; Prefect's go to the API.
    os.environ.setdefault("PREFECT_LOGGING_HANDLERS_CONSOLE_LEVEL", "CRITICAL")
    # It waits 2, 4, 8 ... s between tries: a server that is away for some minutes costs no cell.
    os.environ.setdefault("PREFECT_CLIENT_MAX_RETRIES", "7")
    if not os.environ.get("PREFECT_API_URL"):
        os.environ |= settings(site)
        drop_socks_proxies()
        try:
            Path(os.environ["PREFECT_HOME"]).mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise UserError(f"{site.home}: cannot be written ({error}); set SERVEGRID_HOME") from error


@contextmanager
def api(site: Site) -> Iterator[str]:
    """The URL of the API that Prefect uses inside the block.

    Raises:
        UserError: our server did not come up or has no space, or the given one does not answer.
    """
    from prefect.settings import PREFECT_API_URL, temporary_settings

    given = os.environ.get("PREFECT_API_URL")
    if given:
        if found := problem():
            raise UserError(f"no Prefect API answers at PREFECT_API_URL={given}: {found}")
        yield given
        return
    _check_space(site.home)
    with (
        running(site.home / "prefect" / "server.log", settings(site)) as url,
        temporary_settings({PREFECT_API_URL: url}),
    ):
        try:
            yield url
        finally:
            _send_what_is_queued()


def _check_space(home: Path) -> None:
    """Raises UserError where Prefect's database would not find room, which it tells by a traceback."""
    disk = os.statvfs(home)
    free = disk.f_bavail * disk.f_frsize
    if free < LEAST_FREE_BYTES:
        least = LEAST_FREE_BYTES / 2**20
        raise UserError(
            f"{home}: its disk has {free / 2**20:.0f} MB of space left, fewer than {least:.0f}: "
            "free some, or set SERVEGRID_HOME"
        )


def _send_what_is_queued() -> None:
    """Logs and task-run states travel in the background; without this the last ones miss our server."""
    from prefect.events.worker import EventsWorker
    from prefect.logging.handlers import APILogWorker

    for worker in (APILogWorker, EventsWorker):
        worker.drain_all(timeout=DRAIN_S)


@contextmanager
def running(log_path: Path, env: Mapping[str, str], port: int = 0) -> Iterator[str]:
    """A Prefect server on loopback, by default on a free port; the URL of its API, once it is healthy.

    Those of one PREFECT_HOME start in turn: the first one makes the tables of the database.
    """
    import socket

    from filelock import FileLock
    from prefect.settings import PREFECT_API_URL, temporary_settings

    from servegrid.host import proc

    home = Path(env["PREFECT_HOME"])
    home.mkdir(parents=True, exist_ok=True)
    with ExitStack() as stack:
        with FileLock(home / "start.lock"):
            with socket.socket() as probe:
                probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                probe.bind(("127.0.0.1", port))
                port = probe.getsockname()[1]
            args = ["server", "start", "--host", "127.0.0.1", "--port", str(port)]
            url = f"http://127.0.0.1:{port}/api"
            command = [sys.executable, "-m", "prefect", *args]
            # Its UI would look for the API at Prefect's own port.
            of_ui = {"PREFECT_SERVER_UI_API_URL": url}
            process = stack.enter_context(proc.running(command, log_path=log_path, env={**env, **of_ui}))
            deadline = time.monotonic() + READY_S
            with temporary_settings({PREFECT_API_URL: url}):
                while problem():
                    if process.poll() is not None or time.monotonic() > deadline:
                        raise UserError(
                            f"the Prefect server did not start:\n{proc.tail(log_path)}\n(log: {log_path})"
                        )
                    time.sleep(0.1)
        yield url


def problem() -> str | None:
    """Why the API that Prefect's settings name does not answer, in one line; None where it does.

    Prefect's own client takes certificate, headers and authentication from the settings of every flow run.
    """
    import httpx
    from prefect.client.orchestration import get_client
    from prefect.settings import PREFECT_CLIENT_MAX_RETRIES, temporary_settings

    # OSError: the certificate file; ValueError: no JSON; ImportError: a SOCKS proxy without its package.
    failures = (httpx.HTTPError, httpx.InvalidURL, OSError, ValueError, ImportError)
    try:
        with temporary_settings({PREFECT_CLIENT_MAX_RETRIES: 0}), get_client(sync_client=True) as client:
            client.api_version()  # unlike its health, it needs the authentication
    except failures as error:
        text = " ".join(str(error).split()) or type(error).__name__
        return text + next((f" (see {name})" for sign, name in HINTS.items() if sign in text), "")
    return None
