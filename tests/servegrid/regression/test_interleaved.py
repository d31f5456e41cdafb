"""Two served models in interleaved runs: a slower one is flagged, an equal one is not."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path
from typing import Any

import pytest

from servegrid.regression.interleaved import CandidateEndpoint, InterleavedJob, InterleavedRuns, Run, measure
from servegrid.regression.interleaved_process import CandidateClient, Infer, watching
from servegrid.regression.verdict import CellComparison, judge

pytestmark = pytest.mark.check

MODEL = """
import time
import triton_python_backend_utils as pb_utils
class TritonPythonModel:
    def execute(self, requests):
        time.sleep({seconds} * len(requests))
        inputs = [pb_utils.get_input_tensor_by_name(request, "x") for request in requests]
        outputs = [pb_utils.Tensor.from_dlpack("y", x.to_dlpack()) for x in inputs]
        return [pb_utils.InferenceResponse([y]) for y in outputs]
"""
CONFIG = """
backend: "python" max_batch_size: 8
input { name: "x" data_type: TYPE_INT64 dims: 64 } output { name: "y" data_type: TYPE_INT64 dims: 64 }
instance_group { count: 1 kind: KIND_CPU }
"""


@pytest.fixture(scope="module")
def opponents(server: Any, samples: Path) -> dict[str, CandidateEndpoint]:
    """Three models that wait 5, 5 and 30 ms: six times as long is seen on a busy machine, too."""
    found = {}
    for name, seconds in (("one", 0.005), ("twin", 0.005), ("slower", 0.03)):
        folder = server.repository / name / "1"
        folder.mkdir(parents=True)
        (folder / "model.py").write_text(MODEL.format(seconds=seconds))
        (folder.parent / "config.pbtxt").write_text(CONFIG)
        server.client.load_model(name)
        found[name] = CandidateEndpoint(endpoint=server.endpoint(name), samples=samples)
    return found


@pytest.mark.parametrize(("other", "flagged"), [("twin", False), ("slower", True)])
def test_a_slower_cell_is_flagged(
    opponents: dict[str, CandidateEndpoint], tmp_path: Path, other: str, flagged: bool
) -> None:
    order = InterleavedJob(
        a=opponents["one"], b=opponents[other], batch=2, concurrency=2, pairs=10, run_s=0.15
    )
    turns = measure(order, tmp_path, "turns")
    found = turns.figures("online", order)
    assert [(entry.metric, len(entry.a), len(entry.b)) for entry in found] == [
        ("throughput", 10, 10), ("p50_ms", 10, 10),
    ]  # fmt: skip
    assert all(turn.lag_ms is not None for turn in turns.a + turns.b)
    rate, latency = judge(found)
    assert (CellComparison(cell="c", judged=(rate, latency)).change == "regressed") is flagged
    assert latency.a > 5
    # Two requests of two samples in flight: Little's law.
    assert rate.a * latency.a / 1e3 == pytest.approx(4, rel=0.35)


def test_a_client_that_is_late_itself_is_named_with_its_side(opponents: dict[str, CandidateEndpoint]) -> None:
    order = InterleavedJob(a=opponents["one"], b=opponents["twin"], batch=2, concurrency=2)

    async def blocking(message: Any) -> None:
        time.sleep(0.05)
        await asyncio.sleep(0)

    async def waiting(message: Any) -> None:
        await asyncio.sleep(0.2)

    async def taken(infer: Infer) -> Run:
        with watching() as lags:
            return await CandidateClient(infer, [b""]).turn(order, 0.5, lags)

    late, sound = asyncio.run(taken(blocking)), asyncio.run(taken(waiting))
    (rate, _) = InterleavedRuns(a=(late, late), b=(sound, sound)).figures("online", order)
    assert rate.doubt.startswith("A: the client was ")
    assert "B: " not in rate.doubt
