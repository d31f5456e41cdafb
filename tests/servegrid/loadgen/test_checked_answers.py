"""The client checks a random sample of the answers that it gets under load."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from servegrid.domain.errors import StepError
from servegrid.domain.tolerances import Tolerances
from servegrid.domain.values import Generator, InputData, Protocol, SharedMemory
from servegrid.loadgen.base import Measurement, Point, Target
from servegrid.loadgen.client import checking
from servegrid.loadgen.generators import GENERATORS
from servegrid.loadgen.reference import Reference
from servegrid.store.site import Site

MODEL = """
import numpy as np
import triton_python_backend_utils as pb_utils
SAMPLES = np.random.default_rng(0).random((23, 3), dtype=np.float32)[:, 0]
class TritonPythonModel:
    calls = 0
    def execute(self, requests):
        answers = []
        for request in requests:
            self.calls += 1
            y = np.array(np.from_dlpack(pb_utils.get_input_tensor_by_name(request, "x")))
            {wrong}
            answers.append(pb_utils.InferenceResponse([pb_utils.Tensor.from_dlpack("y", y)]))
        return answers
"""
CONFIG = """
backend: "python" max_batch_size: 8
input { name: "x" data_type: TYPE_FP32 dims: 3 } output { name: "y" data_type: TYPE_FP32 dims: 3 }
instance_group { count: 1 kind: KIND_CPU }
"""
WRONG = {
    "right": "pass",
    "late": "y += 1.0 * (self.calls > 150)",
    "one_row": "y[1] += 1.0 * (self.calls > 20)",
    "no_but_zeros": "assert not y.any()",
    "no_sample": "assert 0 <= y.min() and y.max() < 1 and not (y[:, :1] == SAMPLES).any()",
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """23 samples, and answers that are the same."""
    folder = tmp_path_factory.mktemp("values")
    x = np.random.default_rng(0).random((23, 3), dtype=np.float32)
    np.savez(folder / "samples.npz", allow_pickle=False, **{"x/x": x})
    np.savez(folder / "outputs.npz", allow_pickle=False, y=x)
    return folder


@pytest.fixture(scope="module")
def measure(server: Any, folder: Path, site: Site, interface: Any) -> Callable[..., Measurement]:
    """A short point of a model that is fresh each time."""

    def run(
        wrong: str,
        protocol: Protocol,
        memory: SharedMemory,
        *,
        checked: bool = True,
        data: InputData = "samples",
        generator: Generator = "client",
    ) -> Measurement:
        name = f"checked_{wrong}"
        version = server.repository / name / "1"
        version.mkdir(parents=True, exist_ok=True)
        (version / "model.py").write_text(MODEL.format(wrong=WRONG[wrong]))
        (version.parent / "config.pbtxt").write_text(CONFIG)
        server.client.load_model(name)
        outputs = interface([("x", "float32", (-1, 3))], [("y", "float32", (-1, 3))]).outputs
        reference = Reference(
            answers=folder / "outputs.npz",
            outputs=outputs,
            tolerances=Tolerances(absolute=1e-3, cosine=0.999),
        )
        target = Target(
            endpoint=server.endpoint(name),
            samples=folder,
            logs=folder,
            name="it",
            reference=reference if checked else None,
        )
        point = Point(
            batch=2,
            concurrency=3,
            request_count=100,
            window_s=0.1,
            shared_memory=memory,
            input_data=data,
            protocol=protocol,
            warm_up=False,
        )
        found = GENERATORS[generator].measure(point, target, site)
        server.client.unload_model(name)
        return found

    return run


@pytest.mark.parametrize("protocol", ["grpc", "http"])
@pytest.mark.parametrize("memory", ["none", "system"])
def test_right_answers_are_checked_however_they_come(
    measure: Callable[..., Measurement], protocol: str, memory: str
) -> None:
    found = measure("right", protocol, memory)
    assert found.wrong_answers == ()
    assert found.answers_checked is not None
    assert 200 <= found.answers_checked <= checking.KEPT + 2


@pytest.mark.parametrize("wrong", ["late", "one_row"])
@pytest.mark.parametrize("memory", ["none", "system"])
def test_wrong_answers_under_load_are_named_with_request_time_and_bound(
    measure: Callable[..., Measurement], wrong: str, memory: str
) -> None:
    found = measure(wrong, "grpc", memory)
    assert 1 <= len(found.wrong_answers) <= checking.NAMED
    for part in ("request ", "process 0", "T", "+00:00", "y: 1 off"):
        assert part in found.wrong_answers[0]


def test_without_a_reference_no_answer_is_kept(measure: Callable[..., Measurement]) -> None:
    assert measure("late", "grpc", "none", checked=False).answers_checked is None


@pytest.mark.parametrize("generator", ["client", "perf_analyzer"])
@pytest.mark.parametrize(("data", "only"), [("zero", "no_but_zeros"), ("random", "no_sample")])
@pytest.mark.parametrize("memory", ["none", "system"])
def test_made_input_data_is_sent_in_place_of_samples(
    measure: Callable[..., Measurement], site: Site, generator: str, data: str, only: str, memory: str
) -> None:
    if why := GENERATORS[generator].problem(site):
        pytest.skip(why)
    found = measure(only, "grpc", memory, data=data, generator=generator)
    assert found.throughput > 0
    assert found.answers_checked is None, "the reference has no answers to made data"


def test_samples_are_no_made_input_data(measure: Callable[..., Measurement]) -> None:
    for only in ("no_but_zeros", "no_sample"):
        with pytest.raises(StepError):
            measure(only, "grpc", "none")


def test_kept_answers_are_bounded_by_their_bytes(folder: Path) -> None:
    reference = Reference(
        answers=folder / "outputs.npz", outputs=(), tolerances=Tolerances(absolute=1, cosine=1)
    )
    target = Target.model_construct(reference=reference)
    point = Point(batch=1, concurrency=1, request_count=1, shared_memory="none", warm_up=False)
    assert checking.kept_answers(point, target, 100) == checking.KEPT
    assert checking.kept_answers(point, target, 2**20) == 32
    assert checking.kept_answers(point, target, 2**30) == 1
    on_card = point.model_copy(update={"shared_memory": "cuda"})
    assert checking.kept_answers(on_card, target, 100) == 0
