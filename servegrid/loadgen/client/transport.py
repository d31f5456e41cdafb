"""How a request reaches the server: raw gRPC, or HTTP; both without any work beside the protocol's own.

`serialise` and `parse` are apart from `call`, so that the client's own part of a latency can be timed.
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from typing import Any, Protocol

import aiohttp
from tritonclient.grpc import service_pb2 as pb

from servegrid.domain.values import Endpoint
from servegrid.domain.values import Protocol as ProtocolName
from servegrid.loadgen.client.messages import Place, Request
from servegrid.servers.connection import connect_async

HEADER_LENGTH = "Inference-Header-Content-Length"


class Transport(Protocol):
    """What a protocol does for a request."""

    def message(self, request: Request) -> Any:
        """The request in the protocol's own form, made once."""

    def serialise(self, message: Any) -> Any:
        """What `call` sends."""

    async def call(self, data: Any) -> Any:
        """Send, and wait for the answer; raises what the library raises when there is none."""

    def parse(self, answer: Any) -> None:
        """Read the answer as any client must."""


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


class Grpc:
    """KServe's gRPC protocol."""

    def __init__(self, channel: Any, metadata: list[tuple[str, str]]) -> None:
        infer = channel.unary_unary("/inference.GRPCInferenceService/ModelInfer")
        self._infer = partial(infer, metadata=metadata)

    def message(self, request: Request) -> Any:
        message = pb.ModelInferRequest(model_name=request.model)
        for entry in request.inputs:
            tensor = message.inputs.add(name=entry.name, datatype=entry.datatype, shape=entry.shape)
            if entry.place:
                _point_at(tensor, entry.place)
            else:
                message.raw_input_contents.append(entry.data)
        for name, place in request.outputs:
            _point_at(message.outputs.add(name=name), place)
        return message

    def serialise(self, message: Any) -> Any:
        return message.SerializeToString()

    async def call(self, data: Any) -> Any:
        return await self._infer(data)

    def parse(self, answer: Any) -> None:
        pb.ModelInferResponse.FromString(answer)


class Http:
    """KServe's HTTP protocol with Triton's binary tensor data extension: JSON, then the tensors' bytes."""

    def __init__(self, session: aiohttp.ClientSession, url: str) -> None:
        self._session, self._url = session, url

    def message(self, request: Request) -> Any:
        inputs: list[dict[str, Any]] = []
        for entry in request.inputs:
            where = _parameters(entry.place) if entry.place else {"binary_data_size": len(entry.data)}
            tensor = {"name": entry.name, "datatype": entry.datatype, "shape": entry.shape}
            inputs.append(tensor | {"parameters": where})
        header: dict[str, Any] = {"inputs": inputs}
        if request.outputs:
            header["outputs"] = [{"name": n, "parameters": _parameters(p)} for n, p in request.outputs]
        else:
            header["parameters"] = {"binary_data_output": True}
        return header, b"".join(entry.data for entry in request.inputs)

    def serialise(self, message: Any) -> Any:
        header, tensors = message
        text = json.dumps(header, separators=(",", ":")).encode()
        return text + tensors, {HEADER_LENGTH: str(len(text))}

    async def call(self, data: Any) -> Any:
        body, headers = data
        async with self._session.post(self._url, data=body, headers=headers) as response:
            answer = await response.read()
            if response.status != 200:
                raise ConnectionError(f"HTTP {response.status}: {answer[:500].decode(errors='replace')}")
            return answer, int(response.headers.get(HEADER_LENGTH, len(answer)))

    def parse(self, answer: Any) -> None:
        data, length = answer
        json.loads(data[:length])


def _parameters(place: Place) -> dict[str, Any]:
    return {
        "shared_memory_region": place.region,
        "shared_memory_offset": place.offset,
        "shared_memory_byte_size": place.size,
    }


def _point_at(tensor: Any, place: Place) -> None:
    for name, value in _parameters(place).items():
        kind = "string_param" if isinstance(value, str) else "int64_param"
        setattr(tensor.parameters[name], kind, value)
