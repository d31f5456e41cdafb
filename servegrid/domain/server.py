"""Which Triton server a campaign uses, and how clients reach it."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Literal

from pydantic import Field, field_validator, model_validator

from servegrid.domain.values import Channel, Format, Value

SCHEMES = {"grpc": False, "grpcs": True}
"""Scheme of a server's URL -> whether the channel is TLS."""
URL = re.compile(r"grpcs?://([^/\s:\[\]]+|\[[0-9A-Fa-f:.]+\]):(\d{1,5})")
LARGEST_PORT = 2**16 - 1


class ServerChoice(Value):
    """How a server is got: `name` of the provider, and what that one asks for.

    url, ca_file, headers_file: `remote`, the server to attach to;
    triton_release: the image of `docker`, or the release of a `remote` server of a version unknown to us;
    device_kind: what the cells run on;
    cores_awake: whether this host's cores are kept from sleeping while the server runs.
    """

    name: str = "embedded"
    url: str | None = None
    ca_file: Path | None = None
    headers_file: Path | None = None
    triton_release: str | None = Field(None, pattern=r"^\d\d\.\d\d$")
    device_kind: Literal["cpu", "gpu"] = "cpu"
    cores_awake: bool = False

    @field_validator("url")
    @classmethod
    def _is_url(cls, given: str | None) -> str | None:
        if given is not None:
            found = URL.fullmatch(given)
            if found is None or not 1 <= int(found[2]) <= LARGEST_PORT:
                raise ValueError(
                    "expected grpc://HOST:PORT or grpcs://HOST:PORT, an IPv6 address in brackets: grpc://[::1]:8001"
                )
        return given

    @model_validator(mode="after")
    def _fits(self) -> ServerChoice:
        if self.name == "remote" and self.url is None:
            raise ValueError(
                "server remote needs the url of the server, grpc://HOST:PORT or grpcs://HOST:PORT"
            )
        if self.name != "remote" and (self.url or self.ca_file or self.headers_file):
            raise ValueError("url, ca_file and headers_file go with server remote")
        if self.ca_file and not (self.url or "").startswith("grpcs:"):
            raise ValueError("ca_file goes with a url that begins with grpcs://")
        if self.name != "embedded" and self.cores_awake:
            raise ValueError(
                "cores_awake goes with the embedded server: of another host, or beside a container, whose "
                "processes the kernel schedules as a group of their own, it would not hold"
            )
        if self.name == "embedded" and self.triton_release:
            raise ValueError("triton_release goes with server docker or remote; the embedded server has one")
        return self

    @property
    def address(self) -> str:
        """HOST:PORT of the URL, an IPv6 address in brackets, as gRPC and perf_analyzer take it."""
        return (self.url or "").partition("://")[2]

    @property
    def channel(self) -> Channel:
        """How the URL is reached."""
        tls = SCHEMES.get((self.url or "").partition("://")[0], False)
        return Channel(tls=tls, ca_file=self.ca_file, headers_file=self.headers_file)


class ServerCapabilities(Value):
    """What a server can do, as the plan must know it.

    releases: formats that another release than `release` serves; loads: whether it loads models on request;
    loaded: the models that it has already; shared_memory: whether it sees this host's.
    """

    release: str
    backends: tuple[str, ...]
    releases: dict[Format, str] = Field({})
    loads: bool = True
    loaded: tuple[str, ...] = ()
    shared_memory: bool = True
