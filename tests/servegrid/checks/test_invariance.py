"""Models that answer wrongly only in some batches, at some place, on some instance, on a real server."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from servegrid.checks import invariance
from servegrid.checks.invariance import prove
from servegrid.checks.predictions import executed, predict
from servegrid.domain.arrays import match
from servegrid.domain.errors import StepError
from servegrid.domain.tolerances import Tolerances
from servegrid.domain.values import Interface, Serving

TOLERANCES = Tolerances(absolute=0.001, cosine=0.999)
MODEL = """
import numpy as np
import triton_python_backend_utils as pb_utils
class TritonPythonModel:
    def initialize(self, args):
        self.instance = args["model_instance_name"]
    def execute(self, requests):
        inputs = [np.from_dlpack(pb_utils.get_input_tensor_by_name(request, "x")) for request in requests]
        x = np.concatenate(inputs)
        y = np.array(x)
        {wrong}
        parts = np.split(y, np.cumsum([len(i) for i in inputs])[:-1])
        return [
            pb_utils.InferenceResponse([pb_utils.Tensor.from_dlpack("y", np.array(part))]) for part in parts
        ]
"""
CONFIG = """
backend: "python" max_batch_size: 8
input {{ name: "x" data_type: TYPE_FP32 dims: 3 }} output {{ name: "y" data_type: TYPE_FP32 dims: 3 }}
instance_group {{ count: {instances} kind: KIND_CPU }}
dynamic_batching {{ preferred_batch_size: [ 8 ] max_queue_delay_microseconds: 20000 }}
"""
FAULTS = {
    "right": ("pass", 1, set()),
    "neighbours": ("y += x.sum(axis=0) - x", 1, {"neighbours", "size"}),
    "above_four": ("y += 1.0 * (len(x) > 4)", 1, {"neighbours", "size"}),
    "of_three": ("y += 1.0 * (len(x) == 3)", 1, {"size"}),
    "one_instance": ("y += 1.0 * self.instance.endswith('_1')", 2, {"instances"}),
}
"""Name -> what is wrong, instances, the kinds of invariance that are broken."""
SLOW = {
    f"slow_at_{size}": (f"__import__('time').sleep(1.0 * (len(x) == {size}))", 1, set()) for size in (3, 8)
}


@pytest.fixture(scope="module")
def samples(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("values")
    x = np.random.default_rng(0).random((60, 3), dtype=np.float32)
    np.savez(folder / "samples.npz", allow_pickle=False, **{"x/x": x})
    return folder


@pytest.fixture(scope="module")
def floats(interface: Callable[..., Interface]) -> Interface:
    return interface([("x", "float32", (-1, 3))], [("y", "float32", (-1, 3))])


@pytest.fixture(scope="module")
def load(server: Any) -> Callable[[str], tuple[Any, Serving]]:
    """The endpoint and the serving of a fault's model."""

    def loaded(name: str) -> tuple[Any, Serving]:
        wrong, instances, _ = (FAULTS | SLOW)[name]
        folder = server.repository / f"fault_{name}" / "1"
        if not folder.exists():
            folder.mkdir(parents=True)
            (folder / "model.py").write_text(MODEL.replace("{wrong}", wrong))
            (folder.parent / "config.pbtxt").write_text(CONFIG.format(instances=instances))
            server.client.load_model(f"fault_{name}")
        serving = Serving(batching="dynamic", max_batch_size=8, instances=instances)
        return server.endpoint(f"fault_{name}"), serving

    return loaded


class Numbers:
    """Samples that are their own numbers."""

    def batch(self, start: int, size: int) -> Any:
        return np.arange(start, start + size)


def test_of_large_batches_some_rows_are_compared(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(invariance, "ROWS", 16)
    sizes: list[int] = []

    def ask(batch: Any) -> dict[str, Any]:
        sizes.append(len(batch))
        return {"y": batch + 0.5 * (len(batch) == 5000) * (batch == 4999)}  # the last row of the largest

    grown, alone = invariance._sizes(ask, Numbers(), 5000)
    assert (grown["y"] != alone["y"]).sum() == 1
    assert sizes.count(1) < 200
    assert [size for size in sizes if size > 1] == [*range(2, 17), *(2**p for p in range(5, 13)), 5000]


@pytest.mark.parametrize("name", FAULTS)
def test_each_kind_of_fault_is_named(
    load: Callable[[str], tuple[Any, Serving]], samples: Path, floats: Interface, name: str
) -> None:
    endpoint, serving = load(name)
    found = prove(endpoint, samples, serving, floats.outputs, TOLERANCES, timeout_s=60.0)
    failures = " ".join(found.failures(TOLERANCES))
    kinds = FAULTS[name][2]
    assert {k for k in ("neighbours", "size", "instances") if k in failures} >= kinds
    assert bool(failures) == bool(kinds)
    assert (found.largest_difference > 0.001) == bool(kinds)


@pytest.mark.parametrize("name", SLOW)
def test_a_batch_may_take_as_long_as_is_given(
    load: Callable[[str], tuple[Any, Serving]], samples: Path, floats: Interface, name: str
) -> None:
    endpoint, serving = load(name)
    with pytest.raises(StepError, match="Deadline Exceeded"):
        prove(endpoint, samples, serving, floats.outputs, TOLERANCES, timeout_s=0.5)


@pytest.mark.parametrize("name", ["right", "neighbours", "above_four"])
def test_answers_under_load_meet_in_batches_and_are_all_checked(
    load: Callable[[str], tuple[Any, Serving]], samples: Path, floats: Interface, name: str
) -> None:
    endpoint, _ = load(name)
    with np.load(samples / "samples.npz") as file:
        expected = {"y": file["x/x"]}
    before = executed(endpoint)
    served = predict(endpoint, samples, max_batch=8, timeout_s=60.0, clients=16)
    batches = executed(endpoint) - before
    assert sum(size * count for size, count in batches.items()) == 60
    assert max(batches) > 4
    (found,) = match(floats.outputs, served, expected, TOLERANCES)
    assert bool(found.failures(TOLERANCES)) == (name != "right")
