"""Environment variables of this process and of the programs that it starts: frameworks there wait without
spinning, send nothing and write nothing outside the site, and no proxy stands before loopback. What the user
has set stays as it is."""

from __future__ import annotations

import os
from collections.abc import Mapping, MutableMapping
from pathlib import Path
from types import MappingProxyType

DEFAULTS: Mapping[str, str] = MappingProxyType(
    {
        # Threads of OpenMP (PyTorch's) that wait for work sleep. By default they spin, and take the cores
        # from the server, its client and whatever else runs here.
        "OMP_WAIT_POLICY": "PASSIVE",
        # The Python inside Triton's backend would take only ASCII paths, unless the locale has UTF-8.
        "PYTHONUTF8": "1",
        # ONNX Runtime would report each session to its maker, and keep a device id in ~/.cache/Microsoft.
        "ORT_DISABLE_TELEMETRY": "1",
        # torch.compile would keep compiled headers in /tmp/torchinductor_USER, wherever its cache is.
        "TORCHINDUCTOR_CPP_CACHE_PRECOMPILE_HEADERS": "0",
    }
)

CACHES: Mapping[str, str] = MappingProxyType(
    {
        # Keras writes its configuration into ~/.keras when it is imported.
        "KERAS_HOME": "keras",
        # PyTorch's compiler makes /tmp/torchinductor_USER when an optimizer is made.
        "TORCHINDUCTOR_CACHE_DIR": "torchinductor",
        # OpenAI's Triton keeps the kernels that it compiles for a GPU in ~/.triton.
        "TRITON_CACHE_DIR": "triton",
        # CUDA keeps the kernels that the driver compiles in ~/.nv.
        "CUDA_CACHE_PATH": "cuda",
    }
)
"""Variable -> the folder below `<home>/cache` that it names."""

LOOPBACK = ("localhost", "127.0.0.1", "::1")


def of_site(home: Path) -> dict[str, str]:
    """Where programs of the site keep their caches, but for those that the user has placed elsewhere."""
    return {name: str(home / "cache" / folder) for name, folder in CACHES.items() if name not in os.environ}


def apply_defaults() -> None:
    """Set DEFAULTS in this process; to be called before any framework is imported."""
    for name, value in DEFAULTS.items():
        os.environ.setdefault(name, value)


def bypass_proxies_on_loopback(env: MutableMapping[str, str] = os.environ) -> None:
    """Add loopback to the hosts that are reached without a proxy; the user's own entries stay.

    `*` (no proxy for any host) stays alone, as urllib and curl know it only so. gRPC does not know it, and
    reads `no_grpc_proxy` instead of `no_proxy` where that is set.
    """
    general = _hosts(env, "no_proxy", "NO_PROXY")
    of_grpc = _hosts(env, "no_grpc_proxy") or general
    env["no_proxy"] = env["NO_PROXY"] = "*" if "*" in general else _joined(general)
    env["no_grpc_proxy"] = _joined(of_grpc)


def drop_socks_proxies(env: MutableMapping[str, str] = os.environ) -> None:
    """Take SOCKS proxies out: without the package socksio, httpx fails with one, even for loopback."""
    for name in [name for name in env if name.lower() in ("all_proxy", "http_proxy", "https_proxy")]:
        if env[name].startswith("socks"):
            del env[name]


def _hosts(env: Mapping[str, str], *names: str) -> list[str]:
    entries = (entry.strip() for name in names for entry in env.get(name, "").split(","))
    return [
        entry for entry in entries if entry not in ("", "[::1]")
    ]  # with brackets httpx takes it for a port


def _joined(hosts: list[str]) -> str:
    return ",".join(dict.fromkeys([*hosts, *LOOPBACK]))
