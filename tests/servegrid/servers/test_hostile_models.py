"""Served models that hang, lie or die, ports that are taken and memory that is not there: a real server each,
with sessions of the hosted runtime that do so."""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from google.protobuf import json_format

from servegrid.checks.predictions import predict
from servegrid.domain.arrays import match
from servegrid.domain.errors import StepError
from servegrid.domain.server import ServerChoice
from servegrid.domain.tolerances import Tolerances
from servegrid.domain.values import Interface, Serving
from servegrid.formats.repository import model_config, write_repository
from servegrid.formats.runtime_files import session_file
from servegrid.servers import embedded
from servegrid.servers.connection import connect
from servegrid.servers.control import load
from servegrid.servers.launch import Start
from servegrid.store.site import Site

SERVING = Serving(batching="dynamic", max_batch_size=8)
BOUNDED = "an error within its time limit, with the server's log; the server is stopped and leaves nothing"
SESSION = """
import os, signal, time
import numpy as np
class Session:
    def __init__(self, artifact, kind):
        {init}
    def run(self, inputs):
        x = inputs["x"]
        y = x.astype(np.float32)
        {run}
        return {{"y": y}}
"""


@pytest.fixture
def io(interface: Any) -> Interface:
    found: Interface = interface([("x", "int64", (-1, 64))], [("y", "float32", (-1, 64))])
    return found


@pytest.fixture
def put(io: Interface, tmp_path: Path) -> Callable[..., str]:
    """`put(server, name, init=..., run=..., more=...)`: a model with such a session; its config."""

    def write(server: Any, name: str, *, init: str = "pass", run: str = "pass", more: str = "") -> str:
        write_repository(server.repository, name, "onnx", SERVING, io, tmp_path)
        version = server.repository / name / "1"
        (version / session_file("onnx")).write_text(SESSION.format(init=init, run=run))
        with (version / "model.py").open("a") as file:
            file.write(more)
        text = json_format.MessageToJson(
            model_config(name, "onnx", SERVING, io), preserving_proto_field_name=True
        )
        return str(text)

    return write


@pytest.mark.fault("Servers", BOUNDED, what="a model hangs as it is loaded")
def test_a_model_that_hangs_as_it_loads(start: Any, put: Any, tmp_path: Path, happened: Any) -> None:
    begun = time.monotonic()
    with start(tmp_path) as server:
        config = put(server, "hangs", init="time.sleep(600)")
        with pytest.raises(StepError, match=r"hangs.*Deadline Exceeded") as caught:
            load(server.client, "hangs", config, timeout_s=2.0, log=server.running.log)
        assert caught.value.log == server.running.log
    happened(f"{caught.value}; all over after {time.monotonic() - begun:.0f} s")
    assert time.monotonic() - begun < 60


@pytest.mark.fault("Servers", BOUNDED, what="a model hangs as it is unloaded")
def test_a_model_that_hangs_as_it_unloads(start: Any, put: Any, tmp_path: Path, happened: Any) -> None:
    begun = time.monotonic()
    with start(tmp_path) as server:
        stuck = "\nTritonPythonModel.finalize = lambda self: __import__('time').sleep(600)\n"
        config = put(server, "stuck", more=stuck)
        load(server.client, "stuck", config, timeout_s=30.0, log=server.running.log)
        with pytest.raises(StepError, match=r"stuck\b.*\b2 s"):
            load(server.client, "stuck", config, timeout_s=2.0, log=server.running.log)
    happened(f"not unloaded within 2 s; all over after {time.monotonic() - begun:.0f} s")
    assert time.monotonic() - begun < 60


LIES = {
    "NaN": ("y[0, 0] = np.nan", "off"),
    "infinity": ("y[:] = np.inf", "off"),
    "a value that is wrong": ("y[-1, -1] += 1", "off"),
    "another sample's": ("y = np.roll(y, 1, axis=0) + (len(y) == 1)", "off"),
    "a longer axis": ("y = np.pad(y, [(0, 0), (0, 1)])", "."),
    "another number of axes": ("y = y[:, :, None]", "."),
    "fewer samples": ("y = y[:-1]", "."),
    "another type": ("y = y.astype(np.float64)", "y is FP64; the model's config says FP32"),
    "no output": ("return {}", "KeyError"),
    "no array": ("y = 'nothing'", "the server did not answer"),
    "an exception": ("raise ValueError('not today')", "not today"),
    "a crash": ("os.kill(os.getpid(), signal.SIGSEGV)", "the server did not answer"),
    "nothing in time": ("time.sleep(4)", "the server did not answer: .*Deadline Exceeded"),
}


@pytest.mark.parametrize("kind", LIES)
@pytest.mark.fault(
    "Served models", "the cell ends `failed_accuracy` or `error`, with the reason", what="answers with"
)
def test_a_model_that_lies_does_not_pass(
    kind: str, server: Any, put: Any, io: Interface, samples: Path, happened: Any
) -> None:
    run, named = LIES[kind]
    name = "lies_" + "".join(c for c in kind if c.isalpha())
    config = put(server, name, run=run)
    load(server.client, name, config, timeout_s=30.0, log=server.running.log)
    with np.load(samples / "samples.npz") as file:
        expected = {"y": file["x/x"].astype(np.float32)}
    tolerances = Tolerances(absolute=1e-6, cosine=0.999999)
    try:
        served = predict(server.endpoint(name), samples, 8, 2.0 if kind == "nothing in time" else 20.0)
        found = match(io.outputs, served, expected, tolerances)
        failures = [why for entry in found for why in entry.failures(tolerances)]
    except StepError as error:
        failures = [str(error)]
    finally:
        server.client.unload_model(name)
    assert failures
    assert np.any([bool(re.search(named, why)) for why in failures]), failures
    happened(failures[0])


@pytest.mark.parametrize("kind", ["http", "grpc"])
@pytest.mark.fault(
    "Servers", "other ports are taken, and nobody else's server", what="another has the port of"
)
def test_a_port_that_another_server_has(
    kind: str, server: Any, site: Site, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, happened: Any
) -> None:
    (tmp_path / "repository").mkdir()
    fresh, starts = Start.fresh, []
    taken = getattr(server.running, f"{kind}_url").rpartition(":")[2]

    def first_taken() -> Start:
        start = fresh()
        starts.append(start)
        if len(starts) == 1:
            start.ports[kind] = int(taken)
        return start

    monkeypatch.setattr(Start, "fresh", first_taken)
    with embedded.serve(site, tmp_path / "repository", tmp_path / "log") as running:
        assert running.grpc_url == f"127.0.0.1:{starts[1].ports['grpc']}"
        assert running.grpc_url != server.running.grpc_url
        assert running.http_url != server.running.http_url
    assert len(starts) == 2
    happened("it was started again, on other ports")


@pytest.mark.fault(
    "Shared memory", "the cell ends `error`, with the server's words", what="/dev/shm is full for a server"
)
def test_a_server_without_room_for_shared_memory(
    stranger: Any, put: Any, small_shm: Any, tmp_path: Path, happened: Any
) -> None:
    def choice(port: int) -> ServerChoice:
        return ServerChoice(name="remote", url=f"grpc://127.0.0.1:{port}")

    class Place:
        repository = tmp_path / "repository"

    config = put(Place, "echo")
    options = ("--model-control-mode=explicit",)
    with (
        stranger(tmp_path, *options, choice=choice, within=small_shm) as chosen,
        connect(chosen.address, chosen.channel) as client,
        pytest.raises(StepError) as caught,
    ):
        load(client, "echo", config, timeout_s=30.0, log=str(tmp_path / "server.log"))
    assert "shared memory" in str(caught.value) or "No space left" in str(caught.value), caught.value
    happened(caught.value)
