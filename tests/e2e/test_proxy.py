"""Commands of a user whose environment names proxies that do not answer, and no exception for loopback."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

DEAD = dict.fromkeys(("http_proxy", "https_proxy", "grpc_proxy"), "http://127.0.0.1:9")
ONE = (
    *("--model", "tiny_mlp", "--format", "onnx", "--precision", "fp32", "--max-batch-size", "2"),
    *("--max-concurrency", "1", "--window-s", "0.3", "--request-count", "10"),
)


@pytest.mark.check
@pytest.mark.parametrize("all_proxy", ["http://127.0.0.1:9", "socks5://127.0.0.1:9"])
@pytest.mark.fault("Proxies", "loopback goes past them: the sweep passes", what="dead, all_proxy is")
def test_sweep_with_dead_proxies_and_its_own_prefect_server(
    make_command_in: Callable[..., Any], plugins: Path, all_proxy: str, happened: Any
) -> None:
    kept = {k: v for k, v in os.environ.items() if not k.lower().endswith("_proxy")}
    kept.pop("PREFECT_API_URL", None)
    command = make_command_in(kept | DEAD | {"all_proxy": all_proxy}, plugins)
    code, output = command.run("sweep", *ONE)
    assert code == 0, output
    (cell,) = (row for row in command.rows() if row["kind"] == "cell")
    assert cell["verdict"] in ("passed", "unstable"), cell["reason"]  # how steady it is depends on the host
    happened("the sweep passes")
