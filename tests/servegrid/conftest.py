"""The smallest complete model and device, for tests that change one thing in them; processes to end."""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from servegrid.domain.profile import GpuProfile
from servegrid.domain.spec import ModelSpec


@pytest.fixture
def model_data() -> dict[str, Any]:
    """The content of a model.yaml."""
    return {
        "name": "toy",
        "description": "a toy",
        "framework": "torch",
        "requires": ["torch"],
        "opset": 17,
        "inputs": [{"name": "x", "dtype": "int32", "shape": ["batch", "length", 3, -1]}],
        "outputs": [{"name": "y", "dtype": "float32", "shape": ["batch", "length"]}],
        "formats": {
            "ts-trace": {"export": "ts-trace", "precisions": ["fp32", "fp16"]},
            "onnx": {"export": "onnx", "precisions": ["fp32"]},
        },
        "tolerances": {
            "fp32": {"absolute": 0.001, "cosine": 0.999},
            "fp16": {"absolute": 0.1, "cosine": 0.99},
        },
        "variants": {
            "tiny": {
                "parameters": {"length": 64},
                "samples": 16,
                "serving": {
                    "max_batch_size": 8,
                    "preferred_batch_sizes": [4, 8],
                    "max_queue_delay_us": 7,
                    "instances": [1, 2],
                    "load_timeout_s": 30,
                },
                "offline": {"batch_sizes": [1, 8]},
                "online": {"client_batch": 2, "concurrency": [1, 4, 16]},
                "metric": {"name": "f1", "threshold": 0.8, "drop": {"fp32": 0.001, "fp16": 0.01}},
            }
        },
    }


@pytest.fixture
def spec(model_data: dict[str, Any]) -> ModelSpec:
    return ModelSpec.model_validate(model_data)


@pytest.fixture
def profile() -> GpuProfile:
    return GpuProfile.model_validate(
        {
            "name": "card",
            "description": "a card",
            "device_kind": "gpu",
            "device_names": ["Card 9000"],
            "pool": "gpu-card",
            "precisions": ["fp32", "fp16"],
        }
    )


# Both ignore SIGTERM, which `sleep` inherits.
FAMILY = """
import os, signal, subprocess, sys, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
child = subprocess.Popen(["sleep", "60"])
with open(sys.argv[1] + ".part", "w") as file:
    file.write(f"{os.getpid()} {child.pid}")
os.rename(sys.argv[1] + ".part", sys.argv[1])
time.sleep(60)
"""


class Processes:
    """Commands to run, and what became of them."""

    def python(self, code: str, *arguments: object) -> list[str]:
        return [sys.executable, "-c", code, *map(str, arguments)]

    def family(self, path: Path) -> list[str]:
        """A process and its child; their process ids go into `path`, and neither heeds SIGTERM."""
        return self.python(FAMILY, path)

    def alive(self, pid: int) -> bool:
        try:
            stat = Path(f"/proc/{pid}/stat").read_text()
        except (FileNotFoundError, ProcessLookupError):
            return False
        return stat.rpartition(")")[2].split()[0] not in "ZX"

    def wait_for(self, condition: Callable[[], bool], seconds: float = 20.0) -> None:
        deadline = time.monotonic() + seconds
        while not condition():
            assert time.monotonic() < deadline, "waited in vain"
            time.sleep(0.01)

    def pids(self, path: Path) -> list[int]:
        self.wait_for(path.exists)
        return [int(text) for text in path.read_text().split()]

    def assert_gone(self, family: list[int], seconds: float) -> None:
        try:
            self.wait_for(lambda: not any(map(self.alive, family)), seconds)
        finally:
            for pid in filter(self.alive, family):
                os.kill(pid, signal.SIGKILL)


@pytest.fixture(scope="session")
def processes() -> Processes:
    return Processes()


@pytest.fixture(scope="session")
def identity(server: Any, interface: Any, onnx_artifact: Any) -> str:
    """The shared server's hosted ONNX identity: `x` -> `y`, int64 [batch up to 8, any]."""
    io = interface([("x", "int64", (-1, -1))], [("y", "int64", (-1, -1))])
    artifact = onnx_artifact(io, [("Identity", ["x"], ["y"], {})])
    name: str = server.load("identity", artifact, io)
    return name


@pytest.fixture(scope="session")
def samples(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A `profile_data` artifact for `identity`: 37 samples of 64 values, all different."""
    folder = tmp_path_factory.mktemp("samples")
    x = np.arange(37 * 64, dtype=np.int64).reshape(37, 64)
    np.savez(folder / "samples.npz", allow_pickle=False, **{"ids": np.arange(37), "x/x": x})
    return folder
