"""Environment variables of the programs that we start: frameworks there wait without spinning, send nothing
and write nothing outside the site. A variable that the user has set stays as it is."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType

DEFAULTS: Mapping[str, str] = MappingProxyType(
    {
        # Threads of OpenMP (PyTorch's) that wait for work sleep. By default they spin, and take the cores
        # from the server, its client and whatever else runs here.
        "OMP_WAIT_POLICY": "PASSIVE",
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


def of_site(home: Path) -> dict[str, str]:
    """Where programs of the site keep their caches, but for those that the user has placed elsewhere."""
    return {name: str(home / "cache" / folder) for name, folder in CACHES.items() if name not in os.environ}


def apply_defaults() -> None:
    """Set DEFAULTS in this process; to be called before any framework is imported."""
    for name, value in DEFAULTS.items():
        os.environ.setdefault(name, value)
