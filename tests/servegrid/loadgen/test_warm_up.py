"""Which batch sizes are warmed up before a plan, and that a real server has run them."""

from __future__ import annotations

import json
import time
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from servegrid.checks.predictions import executed
from servegrid.domain.errors import StepError
from servegrid.domain.values import LoadPlan
from servegrid.loadgen.base import Target
from servegrid.loadgen.warm_up import sizes, warm_up

PLAN = LoadPlan(scenario="offline", batch_sizes=(1, 4), concurrency=(1,), generator="client")


@pytest.mark.parametrize(
    ("requests", "config", "expected"),
    [
        ((1, 4), {"max_batch_size": 6, "dynamic_batching": {}}, (1, 2, 3, 4, 5, 6)),
        ((2048,), {"max_batch_size": 8192, "dynamic_batching": {}}, (2048, 4096, 6144, 8192)),
        ((4, 6), {"max_batch_size": 13, "dynamic_batching": {}}, (4, 6, 8, 12)),
        ((1, 4), {"max_batch_size": 6}, (1, 4)),
        ((1, 4), {"dynamic_batching": {}}, (1, 4)),  # no batching at all
    ],
)
def test_every_size_that_the_server_may_run_is_warmed(
    requests: tuple[int, ...], config: dict[str, Any], expected: tuple[int, ...]
) -> None:
    assert sizes(PLAN.model_copy(update={"batch_sizes": requests}), json.dumps(config)) == expected


@pytest.fixture(scope="module")
def still(server: Any, interface: Any, onnx_artifact: Any) -> str:
    """An identity that is served without the dynamic batcher."""
    io = interface([("x", "int64", (-1, -1))], [("y", "int64", (-1, -1))])
    artifact = onnx_artifact(io, [("Identity", ["x"], ["y"], {})])
    name: str = server.load("still", artifact, io, batching="static")
    return name


@pytest.mark.parametrize(("model", "expected"), [("identity", range(1, 9)), ("still", (1, 4))])
def test_the_server_has_run_one_batch_of_each_size(
    server: Any, identity: str, still: str, samples: Path, tmp_path: Path, model: str, expected: Any
) -> None:
    endpoint = server.endpoint(model)
    before = executed(endpoint)
    warm_up(PLAN, Target(endpoint=endpoint, samples=samples, logs=tmp_path, name="it"), timeout_s=60.0)
    deadline = time.monotonic() + 5.0  # it counts a batch a moment after its answer
    while executed(endpoint) - before != Counter(expected) and time.monotonic() < deadline:
        time.sleep(0.02)
    assert executed(endpoint) - before == Counter(expected)


def test_a_server_that_has_not_the_model_does_not_warm_up(server: Any, samples: Path, tmp_path: Path) -> None:
    target = Target(endpoint=server.endpoint("nobody"), samples=samples, logs=tmp_path, name="it")
    with pytest.raises(StepError, match="nobody") as caught:
        warm_up(PLAN, target, timeout_s=60.0)
    assert caught.value.log == server.running.log
