"""Requests and answers as bytes: KServe's gRPC protocol, or its HTTP protocol with Triton's binary tensor
data extension."""

from __future__ import annotations

import json
from typing import Any, Protocol

from tritonclient.grpc import service_pb2 as pb

from servegrid.domain.values import Protocol as ProtocolName
from servegrid.loadgen.client.messages import Output, Place, Request


class Codec(Protocol):
    """What a protocol writes and reads."""

    def message(self, request: Request) -> Any:
        """The request in the protocol's own form, made once."""

    def serialise(self, message: Any) -> Any:
        """What is sent."""

    def parse(self, answer: Any) -> None:
        """Read the answer as any client must."""

    def read(self, answer: Any) -> tuple[Output, ...]:
        """The outputs of an answer."""


class GrpcCodec:
    """Messages of KServe's gRPC protocol."""

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

    def parse(self, answer: Any) -> None:
        pb.ModelInferResponse.FromString(answer)

    def read(self, answer: Any) -> tuple[Output, ...]:
        response = pb.ModelInferResponse.FromString(answer)
        contents = response.raw_output_contents or [b""] * len(response.outputs)
        return tuple(
            Output(o.name, o.datatype, tuple(o.shape), data)
            for o, data in zip(response.outputs, contents, strict=True)
        )


class HttpCodec:
    """A JSON header, then the tensors' bytes."""

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

    def parse(self, answer: Any) -> None:
        data, length = answer
        json.loads(data[:length])

    def read(self, answer: Any) -> tuple[Output, ...]:
        data, start = answer
        found = []
        for output in json.loads(data[:start])["outputs"]:
            end = start + output.get("parameters", {}).get("binary_data_size", 0)
            found.append(Output(output["name"], output["datatype"], tuple(output["shape"]), data[start:end]))
            start = end
        return tuple(found)


HEADER_LENGTH = "Inference-Header-Content-Length"
CODECS: dict[ProtocolName, Codec] = {"grpc": GrpcCodec(), "http": HttpCodec()}


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
