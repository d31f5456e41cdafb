"""Deployments that answer wrongly only in one size, row, serving or way of sending, on a real server."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from servegrid.checks.deployment import Deployment, prove
from servegrid.domain.errors import StepError, WrongAnswerError
from servegrid.domain.tolerances import Tolerances
from servegrid.domain.values import Interface, LoadPlan, Serving
from servegrid.loadgen.base import Target
from servegrid.loadgen.reference import Reference

MODEL = """
import numpy as np
import triton_python_backend_utils as pb_utils
class TritonPythonModel:
    def initialize(self, args):
        self.instance, self.calls = args["model_instance_name"], 0
    def execute(self, requests):
        inputs = [np.from_dlpack(pb_utils.get_input_tensor_by_name(request, "x")) for request in requests]
        x = np.concatenate(inputs)
        y = np.array(x)
        self.calls += 1
        {wrong}
        parts = np.split(y, np.cumsum([len(i) for i in inputs])[:-1])
        return [
            pb_utils.InferenceResponse([pb_utils.Tensor.from_dlpack("y", np.array(part))]) for part in parts
        ]
"""
CONFIG = """
backend: "python" max_batch_size: 32
input {{ name: "x" data_type: TYPE_FP32 dims: 3 }} output {{ name: "y" data_type: TYPE_FP32 dims: 3 }}
instance_group {{ count: {instances} kind: KIND_CPU }}
"""
FAULTS = {
    "at_a_preferred_size": ("y += 1.0 * (len(x) == 24)", 1, "batch of 24"),
    "in_one_row": ("y[30:31] += 1.0", 1, "batch of 31"),
    "by_another_row": ("y[-2:] = y[-2:][::-1].copy()", 1, "batch of 2"),
    "on_one_instance": ("y += 1.0 * (self.instance.endswith('_1'))", 2, "batch of"),
    "a_row_less": ("y = y[: len(y) - (len(y) == 24)]", 1, "batch of 24"),
    "after_some_requests": ("y += 1.0 * (self.calls > 20)", 1, "batch of 21"),
}


@pytest.fixture(scope="module")
def target(server: Any, tmp_path_factory: pytest.TempPathFactory, interface: Any) -> Callable[..., Target]:
    """What is asked: a model of 60 samples that answers with its input, but for what is wrong."""
    folder = tmp_path_factory.mktemp("values")
    x = np.random.default_rng(0).random((60, 3), dtype=np.float32)
    np.savez(folder / "samples.npz", allow_pickle=False, **{"x/x": x})
    np.savez(folder / "outputs.npz", allow_pickle=False, y=x)
    io: Interface = interface([("x", "float32", (-1, 3))], [("y", "float32", (-1, 3))])
    reference = Reference(
        answers=folder / "outputs.npz",
        outputs=io.outputs,
        tolerances=Tolerances(absolute=1e-3, cosine=0.999),
    )

    def make(name: str, wrong: str = "pass", instances: int = 1) -> Target:
        version = server.repository / f"deployment_{name}" / "1"
        if not version.exists():
            version.mkdir(parents=True)
            (version / "model.py").write_text(MODEL.format(wrong=wrong))
            (version.parent / "config.pbtxt").write_text(CONFIG.format(instances=instances))
            server.client.load_model(f"deployment_{name}")
        endpoint = server.endpoint(f"deployment_{name}")
        return Target(endpoint=endpoint, samples=folder, logs=folder, name="it", reference=reference)

    return make


def deployment(instances: int = 1, **plan: Any) -> Deployment:
    serving = Serving(batching="static", max_batch_size=32, preferred_batch_sizes=(24,), instances=instances)
    load = {"scenario": "offline", "batch_sizes": (1, 8), "concurrency": (1,), "generator": "client"} | plan
    return Deployment(serving=serving, plan=LoadPlan.model_validate(load))


def test_sizes_are_those_measured_those_preferred_small_ones_powers_and_the_largest() -> None:
    serving = Serving(batching="dynamic", max_batch_size=100, preferred_batch_sizes=(48,))
    one = Deployment(serving=serving, plan=deployment(batch_sizes=(1, 77)).plan)
    assert one.sizes == (*range(1, 33), 48, 64, 77, 100)
    assert one.used == (1, 48, 77)
    none = Deployment(
        serving=Serving(batching="disabled", max_batch_size=0), plan=deployment(batch_sizes=(4,)).plan
    )
    assert none.sizes == (4,)


@pytest.mark.parametrize("protocol", ["grpc", "http"])
@pytest.mark.parametrize("memory", ["none", "system"])
def test_a_right_model_passes_however_it_is_asked(
    target: Callable[..., Target], protocol: str, memory: str
) -> None:
    one = deployment(protocol=protocol, shared_memory=memory)
    prove(one, one.sizes, target("right"), 60.0, "before")


@pytest.mark.parametrize("name", FAULTS)
@pytest.mark.parametrize("memory", ["none", "system"])
def test_every_fault_is_found_and_its_deployment_and_size_are_named(
    target: Callable[..., Target], name: str, memory: str
) -> None:
    wrong, instances, where = FAULTS[name]
    one = deployment(instances, shared_memory=memory)
    with pytest.raises(WrongAnswerError) as caught:
        prove(one, one.sizes, target(f"{name}_{memory}", wrong, instances), 60.0, "before")
    for part in ("offline", "static", memory, where, "y: "):
        assert part in str(caught.value)


@pytest.mark.parametrize("protocol", ["grpc", "http"])
def test_a_refused_request_is_an_error_with_the_servers_words(
    target: Callable[..., Target], protocol: str
) -> None:
    with pytest.raises(StepError, match="batch-size must be <= 32"):
        prove(deployment(protocol=protocol), (33,), target("right"), 60.0, "before")
