"""A server that is killed while it warms up: the error names the server's log, not the client's."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from servegrid.domain.errors import StepError
from servegrid.domain.values import LoadPlan
from servegrid.loadgen.base import Point, Target
from servegrid.loadgen.measured import measure_point
from servegrid.loadgen.warm_up import warm_up
from servegrid.store.site import Site

CONFIG = """
backend: "python" max_batch_size: 8
input { name: "x" data_type: TYPE_INT64 dims: 64 } output { name: "y" data_type: TYPE_INT64 dims: 64 }
instance_group { kind: KIND_CPU }
"""
HANGS = """
import pathlib, time
class TritonPythonModel:
    def execute(self, requests):
        pathlib.Path(%r).touch()
        time.sleep(60)
"""
PLAN = LoadPlan(scenario="offline", batch_sizes=(1,), concurrency=(1,), generator="client")
POINT = Point(batch=1, concurrency=1, request_count=5, shared_memory="none", warm_up=True)
STAGES: dict[str, Callable[[Target, Site], object]] = {
    "the plan's warm-up": lambda target, site: warm_up(PLAN, target, timeout_s=60.0),
    "the warm-up of a point": lambda target, site: measure_point("client", POINT, target, site),
}


@pytest.mark.parametrize("stage", STAGES)
@pytest.mark.fault(
    "Servers", "the error says that the server is gone, and names its log", what="the server is killed in"
)
def test_server_killed_during_a_warm_up_is_named_with_its_log(
    stage: str, start: Any, site: Site, samples: Path, tmp_path: Path, processes: Any, happened: Any
) -> None:
    reached = tmp_path / "reached"
    with start(tmp_path) as server:
        version = server.repository / "hangs" / "1"
        version.mkdir(parents=True)
        (version.parent / "config.pbtxt").write_text(CONFIG)
        (version / "model.py").write_text(HANGS % str(reached))
        server.client.load_model("hangs")
        target = Target(endpoint=server.endpoint("hangs"), samples=samples, logs=tmp_path / "logs", name="it")

        def kill() -> None:
            processes.wait_for(reached.exists, 60)
            server.process.kill()

        killer = threading.Thread(target=kill)
        killer.start()
        with pytest.raises(StepError, match="server is gone") as caught:
            STAGES[stage](target, site)
        killer.join()
        assert caught.value.log == server.running.log
        assert server.running.log in str(caught.value)
        happened(str(caught.value).splitlines()[0])


def test_error_of_a_client_whose_server_lives_is_its_own(
    server: Any, identity: str, samples: Path, tmp_path: Path, site: Site
) -> None:
    broken = Target(endpoint=server.endpoint("nobody"), samples=samples, logs=tmp_path, name="it")
    with pytest.raises(StepError) as caught:
        measure_point("client", POINT, broken, site)
    assert caught.value.log != server.running.log
    assert "nobody" in str(caught.value)
