"""Loopback goes past a proxy that is dead, whatever the user has set; other hosts go through it."""

from __future__ import annotations

import os
import socket
import threading
import urllib.error
import urllib.request
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from http.server import BaseHTTPRequestHandler, HTTPServer
from unittest import mock

import grpc
import httpx
import pytest

from servegrid.host.process_environment import bypass_proxies_on_loopback, drop_socks_proxies

DEAD = dict.fromkeys(("http_proxy", "https_proxy", "grpc_proxy", "all_proxy"), "http://127.0.0.1:9")
ELSEWHERE = "http://192.0.2.1:80"
"""An address of no host (RFC 5737)."""
OWN = {
    "nothing": {},
    "a host": {"no_proxy": "example.org, 192.168.0.0/16"},
    "a host in capitals": {"NO_PROXY": "example.org"},
    "a host for gRPC": {"no_grpc_proxy": "example.org"},
    "no proxies at all": {"no_proxy": "*"},
    "loopback in part": {"no_proxy": "localhost"},
    "loopback in brackets": {"no_proxy": "[::1]"},
}
HOSTS = [("127.0.0.1", socket.AF_INET), ("::1", socket.AF_INET6), ("localhost", socket.AF_INET)]


class Answer(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        self.send_response(200)
        self.end_headers()
        self.wfile.write(b"here")

    def log_message(self, *_: object) -> None:
        """Print nothing."""


@pytest.fixture(params=HOSTS, ids=lambda host: host[0])
def host(request: pytest.FixtureRequest) -> tuple[str, socket.AddressFamily]:
    name, family = request.param
    if family == socket.AF_INET6:
        request.getfixturevalue("ipv6")
    return name, family


@pytest.fixture
def url(host: tuple[str, socket.AddressFamily]) -> Iterator[str]:
    """A web server on loopback, by the name or address."""
    name, family = host
    server_class = type("Server", (HTTPServer,), {"address_family": family})
    with server_class((name, 0), Answer) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"http://{_bracketed(name)}:{server.server_address[1]}"
        server.shutdown()
        thread.join()


@pytest.fixture(params=OWN)
def own(request: pytest.FixtureRequest) -> Iterator[dict[str, str]]:
    """The environment of a user with dead proxies and exceptions of their own."""
    kept = {k: v for k, v in os.environ.items() if not k.lower().endswith("_proxy")}
    given = OWN[request.param]
    with mock.patch.dict(os.environ, {**kept, **DEAD, **given}, clear=True):
        yield given


def test_loopback_is_reached_without_a_proxy_by_http(own: dict[str, str], url: str) -> None:
    bypass_proxies_on_loopback()
    assert httpx.get(url, timeout=10).text == "here"
    if "[" not in url:  # urllib compares an address with its brackets, which httpx does not take
        with urllib.request.urlopen(url, timeout=10) as answer:
            assert answer.read() == b"here"


def test_loopback_is_reached_without_a_proxy_by_grpc(
    own: dict[str, str], host: tuple[str, socket.AddressFamily]
) -> None:
    bypass_proxies_on_loopback()
    server = grpc.server(ThreadPoolExecutor(1))
    port = server.add_insecure_port(f"{_bracketed(host[0])}:0")
    server.start()
    try:
        with grpc.insecure_channel(f"{_bracketed(host[0])}:{port}") as channel:
            grpc.channel_ready_future(channel).result(timeout=10)
    finally:
        server.stop(None).wait()


def test_another_host_goes_through_the_proxy(own: dict[str, str]) -> None:
    bypass_proxies_on_loopback()
    if own.get("no_proxy") == "*":
        assert urllib.request.proxy_bypass("192.0.2.1")
        return
    with pytest.raises(urllib.error.URLError, match="refused"):
        urllib.request.urlopen(ELSEWHERE, timeout=10)
    with pytest.raises(httpx.ConnectError, match="refused"):
        httpx.get(ELSEWHERE, timeout=10)


def test_own_entries_stay(own: dict[str, str]) -> None:
    bypass_proxies_on_loopback()
    for name, value in own.items():
        entries = {entry.strip().strip("[]") for entry in value.split(",")}
        assert entries <= set(os.environ[name].split(","))
    before = dict(os.environ)
    bypass_proxies_on_loopback()
    assert dict(os.environ) == before, "a second time changes nothing"


def test_socks_proxies_are_dropped_and_others_stay() -> None:
    env = {"ALL_PROXY": "socks5h://h:1", "http_proxy": "http://h:2", "https_proxy": "socks4://h:3"}
    drop_socks_proxies(env)
    assert env == {"http_proxy": "http://h:2"}


def _bracketed(name: str) -> str:
    return f"[{name}]" if ":" in name else name
