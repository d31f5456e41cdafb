"""Which Triton server a campaign uses, and how clients reach it."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Literal

from pydantic import Field, field_validator, model_validator

from servegrid.domain.values import Channel, Format, Protocol, Value

SCHEMES = {"grpc": False, "grpcs": True}
"""Scheme of a server's URL -> whether the channel is TLS."""
URL = re.compile(r"grpcs?://([^/\s:\[\]]+|\[[0-9A-Fa-f:.]+\]):(\d{1,5})")
LARGEST_PORT = 2**16 - 1


class ServerChoice(Value):
    """A provider of servers, by name, and its options; each provider lists the options that it takes.

    url, ca_file, headers_file: the server to attach to;
    triton_release: the release of the image, or of a server whose version is unknown;
    folder: where a server is installed, with bin/ and backends/; backends: a folder with more backends;
    device_kind: the device of the cells.
    """

    name: str = "embedded"
    url: str | None = None
    ca_file: Path | None = None
    headers_file: Path | None = None
    triton_release: str | None = Field(None, pattern=r"^\d\d\.\d\d$")
    folder: Path | None = None
    backends: Path | None = None
    device_kind: Literal["cpu", "gpu"] = "cpu"

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
    def _ca_file_needs_tls(self) -> ServerChoice:
        if self.ca_file and not self.channel.tls:
            raise ValueError("ca_file goes with a url that begins with grpcs://")
        return self

    @property
    def options(self) -> tuple[str, ...]:
        """The names of the options that are set."""
        return tuple(option for option, field in SERVER_OPTIONS.items() if getattr(self, field))

    @property
    def runs_already(self) -> bool:
        """Whether the campaign attaches to a server instead of starting one."""
        return self.url is not None

    @property
    def address(self) -> str:
        """HOST:PORT of the URL, an IPv6 address in brackets, as gRPC and perf_analyzer take it."""
        return (self.url or "").partition("://")[2]

    @property
    def channel(self) -> Channel:
        """The channel to the URL."""
        tls = SCHEMES.get((self.url or "").partition("://")[0], False)
        return Channel(tls=tls, ca_file=self.ca_file, headers_file=self.headers_file)


SERVER_OPTIONS = {
    **{name: name for name in ("url", "ca_file", "headers_file", "triton_release")},
    "server_folder": "folder",
    "backend_directory": "backends",
}
"""Option of a sweep -> the field of `ServerChoice` that it sets."""


class ServerOptions(Value):
    """The options that a provider takes, and those of them that it needs."""

    takes: tuple[str, ...]
    needs: tuple[str, ...] = ()


class ServerCapabilities(Value):
    """What a server can do, as far as the plan depends on it.

    releases: the formats that another release than `release` serves; loads: whether it loads models on
    request; loaded: the models that are loaded now; shared_memory: whether it can open this host's;
    protocols: those that clients can use; why_not_python: why its Python backend hosts no model here.
    """

    release: str
    backends: tuple[str, ...]
    releases: dict[Format, str] = Field({})
    loads: bool = True
    loaded: tuple[str, ...] = ()
    shared_memory: bool = True
    protocols: tuple[Protocol, ...] = ("grpc", "http")
    why_not_python: str = ""

    def release_of(self, format_: Format) -> str:
        """The release that serves a format."""
        return self.releases.get(format_, self.release)
