"""One inference request as the load generator holds it, whatever the protocol."""

from __future__ import annotations

from typing import NamedTuple


class Place(NamedTuple):
    """Bytes of a region of shared memory."""

    region: str
    offset: int
    size: int


class Input(NamedTuple):
    """An input of a request: its tensor lies in shared memory, or is `data`, little-endian."""

    name: str
    datatype: str
    shape: tuple[int, ...]
    place: Place | None
    data: bytes


class Request(NamedTuple):
    """One request to a model; its outputs go to shared memory, or (none named) all into the answer."""

    model: str
    inputs: tuple[Input, ...]
    outputs: tuple[tuple[str, Place], ...]


class Output(NamedTuple):
    """An output of an answer; `data` is empty where it lies in shared memory."""

    name: str
    datatype: str
    shape: tuple[int, ...]
    data: bytes
