"""The smallest complete model and device, for tests that change one thing in them."""

from __future__ import annotations

from typing import Any

import pytest

from tasks.core.profile import GpuProfile
from tasks.core.spec import ModelSpec


@pytest.fixture
def model_data() -> dict[str, Any]:
    """What a model.yaml holds."""
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
