"""How many threads a session on the CPU computes with."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from servegrid.domain.values import Serving
from servegrid.formats.runtime_files import session_file
from servegrid.hosting import threads

NAMES = ("OMP_NUM_THREADS", "OMP_WAIT_POLICY", "TF_NUM_INTRAOP_THREADS", "TF_NUM_INTEROP_THREADS")


@pytest.fixture(autouse=True)
def _nothing_set(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in NAMES:
        monkeypatch.setenv(name, "")  # to be put back, whatever the test leaves
        monkeypatch.delenv(name)


def settings() -> dict[str, str | None]:
    return {name: os.environ.get(name) for name in NAMES}


def test_process_that_may_use_one_core_has_one() -> None:
    code = "import os; os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})\n"
    code += "from servegrid.hosting import threads; print(threads.cores())"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["1"]


@pytest.mark.parametrize(("instances", "each"), [(1, 8), (2, 4), (3, 2), (16, 1)])
def test_instances_share_the_cores(monkeypatch: pytest.MonkeyPatch, instances: int, each: int) -> None:
    monkeypatch.setattr(threads, "cores", lambda: 8)
    threads.limit(instances)
    assert settings() == dict(zip(NAMES, (str(each), "PASSIVE", str(each), "1"), strict=True))
    assert threads.count() == each


@pytest.mark.parametrize(("users", "each"), [("3", 3), ("3,1", 3)])
def test_settings_of_the_user_stay(monkeypatch: pytest.MonkeyPatch, users: str, each: int) -> None:
    monkeypatch.setenv("OMP_NUM_THREADS", users)
    monkeypatch.setenv("OMP_WAIT_POLICY", "ACTIVE")
    threads.limit(2)
    assert settings() == dict(zip(NAMES, (users, "ACTIVE", str(each), "1"), strict=True))
    assert threads.count() == each


@pytest.mark.parametrize("users", ["", "0", "many"])
def test_number_that_means_nothing_is_not_taken(monkeypatch: pytest.MonkeyPatch, users: str) -> None:
    monkeypatch.setenv("OMP_NUM_THREADS", users)
    assert threads.count() == threads.cores()


def test_two_hardware_threads_are_one_core_in_made_up_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for cpu, siblings in enumerate(("0,2", "1,3", "0,2", "1,3")):
        (folder := tmp_path / f"cpu{cpu}" / "topology").mkdir(parents=True)
        (folder / "thread_siblings_list").write_text(f"{siblings}\n")
    monkeypatch.setattr(threads, "CPUS", tmp_path)
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0, 1, 2})
    assert threads.cores() == 2


@pytest.mark.parametrize(
    ("own", "above", "cores"),
    [("max 100000", "max 100000", 8), ("150000 100000", "max 100000", 2), ("max 100000", "50000 100000", 1)],
)
def test_quota_of_a_made_up_control_group_is_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, own: str, above: str, cores: int
) -> None:
    (folder := tmp_path / "groups" / "slice" / "unit").mkdir(parents=True)
    (folder / "cpu.max").write_text(f"{own}\n")
    (folder.parent / "cpu.max").write_text(f"{above}\n")
    (tmp_path / "self").write_text("1:cpu:/\n0::/slice/unit\n")
    monkeypatch.setattr(threads, "CGROUPS", tmp_path / "groups")
    monkeypatch.setattr(threads, "SELF", tmp_path / "self")
    monkeypatch.setattr(threads, "CPUS", tmp_path / "none")
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(8)))
    assert threads.cores() == cores


OPTIONS = """
import json, os
from servegrid.hosting.onnx_options import cpu_options
os.environ["OMP_NUM_THREADS"] = "3"
options = cpu_options()
spinning = options.get_session_config_entry("session.intra_op.allow_spinning")
print(json.dumps([options.intra_op_num_threads, options.inter_op_num_threads, spinning]))
"""


def test_threads_of_onnx_runtime_are_as_many_and_do_not_spin(run_python: Any) -> None:
    assert json.loads(run_python(OPTIONS)) == [3, 1, "0"]


PYTORCH = """
from servegrid.hosting import threads
threads.cores = lambda: 2
threads.limit(2)
import torch
print(torch.get_num_threads())
"""


def test_threads_of_pytorch_are_as_many(run_python: Any) -> None:
    assert run_python(PYTORCH).split() == ["1"]


SESSION = """
import os
import numpy as np
class Session:
    def __init__(self, artifact, kind): pass
    def run(self, inputs):
        found = [int(os.environ["OMP_NUM_THREADS"]), int(os.environ["OMP_WAIT_POLICY"] == "PASSIVE")]
        return {"y": np.array([found] * len(inputs["x"]))}
"""


@pytest.mark.parametrize("instances", [1, 2])
def test_instances_in_the_server_share_its_cores(
    server: Any, interface: Any, tmp_path: Path, instances: int
) -> None:
    io = interface([("x", "int64", (-1, 2))], [("y", "int64", (-1, 2))])
    name, serving = f"threads_{instances}", Serving(batching="dynamic", max_batch_size=8, instances=instances)
    server.write(name, tmp_path, io, serving=serving)
    (server.repository / name / "1" / session_file("onnx")).write_text(SESSION)
    server.client.load_model(name)
    found = server.ask(name, {"x": np.zeros((1, 2), np.int64)})["y"]
    server.client.unload_model(name)
    assert found.tolist() == [[max(1, threads.cores() // instances), 1]]
