"""How a request reaches the server: raw gRPC, or HTTP; both do only the work of the protocol.

`serialise` and `parse` are apart from `call`, so that the client's own part of a latency can be timed.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from typing import Any, Protocol

import aiohttp

from servegrid.domain.values import Endpoint
from servegrid.domain.values import Protocol as ProtocolName
from servegrid.loadgen.client.codec import HEADER_LENGTH, Codec, GrpcCodec, HttpCodec
from servegrid.servers.connection import connect_async

METHOD = "/inference.GRPCInferenceService/ModelInfer"


class Transport(Codec, Protocol):
    """What a protocol does for a request."""

    async def call(self, data: Any) -> Any:
        """Send, and wait for the answer; raises what the library raises when there is none."""


@asynccontextmanager
async def connect(protocol: ProtocolName, endpoint: Endpoint) -> AsyncIterator[Transport]:
    """A transport for as long as the block runs."""
    if protocol == "grpc":
        opened, metadata = connect_async(endpoint.grpc_url, endpoint.channel)
        async with opened as channel:
            yield Grpc(channel, metadata)
    else:
        connector, timeout = aiohttp.TCPConnector(limit=0), aiohttp.ClientTimeout(total=None)
        async with aiohttp.ClientSession(connector=connector, timeout=timeout) as session:
            yield Http(session, f"http://{endpoint.http_url}/v2/models/{endpoint.model}/infer")


class Grpc(GrpcCodec):
    """KServe's gRPC protocol."""

    def __init__(self, channel: Any, metadata: list[tuple[str, str]]) -> None:
        self._infer = partial(channel.unary_unary(METHOD), metadata=metadata)

    async def call(self, data: Any) -> Any:
        return await self._infer(data)


class Http(HttpCodec):
    """KServe's HTTP protocol."""

    def __init__(self, session: aiohttp.ClientSession, url: str) -> None:
        self._session, self._url = session, url

    async def call(self, data: Any) -> Any:
        body, headers = data
        async with self._session.post(self._url, data=body, headers=headers) as response:
            answer = await response.read()
            if response.status != 200:
                raise ConnectionError(f"HTTP {response.status}: {answer[:500].decode(errors='replace')}")
            return answer, int(response.headers.get(HEADER_LENGTH, len(answer)))
