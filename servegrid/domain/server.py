"""Which Triton server a campaign uses, and how clients reach it."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from pydantic import Field, model_validator

from servegrid.domain.values import Channel, Format, Value

SCHEMES = {"grpc": False, "grpcs": True}
"""Scheme of a server's URL -> whether the channel is TLS."""


class ServerChoice(Value):
    """How a server is got: `name` of the provider, and what that one asks for.

    url, ca_file, headers_file: `remote`, the server to attach to;
    triton_release: the image of `docker`, or the release of a `remote` server of a version unknown to us;
    device_kind: what the cells run on.
    """

    name: str = "embedded"
    url: str | None = Field(None, pattern=r"^grpcs?://[^/\s:]+:\d+$")
    ca_file: Path | None = None
    headers_file: Path | None = None
    triton_release: str | None = Field(None, pattern=r"^\d\d\.\d\d$")
    device_kind: Literal["cpu", "gpu"] = "cpu"

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
        if self.name == "embedded" and self.triton_release:
            raise ValueError("triton_release goes with server docker or remote; the embedded server has one")
        return self

    @property
    def address(self) -> str:
        """HOST:PORT of the URL."""
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
