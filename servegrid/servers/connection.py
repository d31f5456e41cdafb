"""gRPC clients of a server, over the channel by which it is reached."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import grpc
import tritonclient.grpc as triton
from tritonclient.grpc import InferenceServerClientPlugin

from servegrid.domain.errors import UserError
from servegrid.domain.values import Channel

TIMEOUT_S = 30.0
"""How long a server may take for an answer that costs it nothing."""
UNLIMITED = [("grpc.max_receive_message_length", -1), ("grpc.max_send_message_length", -1)]


class _Headers(InferenceServerClientPlugin):  # type: ignore[misc]  # it has no types
    """Adds headers to every call of a client."""

    def __init__(self, headers: dict[str, str]) -> None:
        self._headers = headers

    def __call__(self, request: Any) -> None:
        request.headers = {**(request.headers or {}), **self._headers}


def connect(address: str, channel: Channel) -> Any:
    """tritonclient's gRPC client; nothing is sent yet."""
    client = triton.InferenceServerClient(address, creds=_credentials(channel))
    if channel.headers_file:
        client.register_plugin(_Headers(read_headers(channel.headers_file)))
    return client


def connect_channel(address: str, channel: Channel) -> tuple[grpc.Channel, list[tuple[str, str]]]:
    """A bare channel without limits of size, and the metadata that each call is to bear."""
    credentials = _credentials(channel)
    metadata = list(read_headers(channel.headers_file).items()) if channel.headers_file else []
    if credentials:
        return grpc.secure_channel(address, credentials, options=UNLIMITED), metadata
    return grpc.insecure_channel(address, options=UNLIMITED), metadata


def connect_async(address: str, channel: Channel) -> tuple[grpc.aio.Channel, list[tuple[str, str]]]:
    """A bare asyncio channel without limits of size, and the metadata that each call is to bear."""
    credentials = _credentials(channel)
    metadata = list(read_headers(channel.headers_file).items()) if channel.headers_file else []
    if credentials:
        return grpc.aio.secure_channel(address, credentials, options=UNLIMITED), metadata
    return grpc.aio.insecure_channel(address, options=UNLIMITED), metadata


def read_headers(path: Path) -> dict[str, str]:
    """The headers of a file, one `name: value` a line.

    Raises:
        UserError: it cannot be read, or a line is none (which is not shown: it may be a secret).
    """
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise UserError(f"headers_file {path}: cannot be read: {error}") from error
    headers = {}
    for number, line in enumerate(lines, start=1):
        name, colon, value = line.partition(":")
        if line.strip() and not (colon and name.strip()):
            raise UserError(f"headers_file {path}, line {number}: expected `name: value`")
        if line.strip():
            headers[name.strip().lower()] = value.strip()  # gRPC takes names in lower case only
    return headers


def _credentials(channel: Channel) -> grpc.ChannelCredentials | None:
    if not channel.tls:
        return None
    try:
        return grpc.ssl_channel_credentials(channel.ca_file.read_bytes() if channel.ca_file else None)
    except OSError as error:
        raise UserError(f"ca_file {channel.ca_file}: cannot be read: {error}") from error
