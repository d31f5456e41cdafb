"""The life of a Triton container, by the real docker CLI: what it passes on is recorded by a stand-in for the
engine, which has the wheel's server for the image's."""

from __future__ import annotations

import logging
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pytest
from tritonclient.utils import InferenceServerException

from servegrid.domain.errors import StepError, UserError
from servegrid.domain.server import ServerChoice
from servegrid.domain.values import Serving
from servegrid.formats.repository import write_repository
from servegrid.host import containers
from servegrid.servers import docker
from servegrid.servers.connection import connect
from servegrid.store.site import Site

DYNAMIC = Serving(batching="dynamic", max_batch_size=4)
IMAGE = "nvcr.io/nvidia/tritonserver:24.10-py3"


def choice(release: str, device: str = "cpu") -> ServerChoice:
    return ServerChoice.model_validate({"name": "docker", "triton_release": release, "device_kind": device})


@pytest.fixture
def place(site: Site, tmp_path: Path, interface: Any, onnx_artifact: Any) -> tuple[Site, Path, Path]:
    """A site with one artifact in its store, a repository whose model links to it, and a log's path."""
    io = interface([("x", "int64", (-1, -1))], [("y", "int64", (-1, -1))])
    artifact = tmp_path / "home" / "store" / "echo"
    shutil.copytree(onnx_artifact(io, [("Identity", ["x"], ["y"], {})]), artifact)
    write_repository(tmp_path / "repository", "echo", "onnx", DYNAMIC, io, artifact)
    return (
        site.model_copy(update={"home": tmp_path / "home"}),
        tmp_path / "repository",
        tmp_path / "server.log",
    )


def left(running: Any, engine: Any) -> list[Any]:
    """The container and shared memory that a server has left behind."""
    return [*engine.containers, *Path("/dev/shm").glob(f"{running.shm_prefix}*")]


def test_a_container_from_pull_to_stop(
    engine: Any, place: Any, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    site, repository, log = place
    monkeypatch.setattr(docker, "card_uuid", lambda: "GPU-0af1")
    with (
        caplog.at_level(logging.INFO, "servegrid"),
        docker.serve(site, repository, log, choice("24.10", "gpu")) as running,
    ):
        assert (running.provider, running.version) == ("docker", "2.51.0")
        assert "0123456789ab: Pull complete" in caplog.text
        (container,) = engine.containers.values()
        assert psutil.Process(running.pid).name() == "tritonserver"
        with connect(running.grpc_url, running.channel) as client:
            client.load_model("echo")
            x = np.arange(6).reshape(2, 3)
            entry = docker_input(x)
            np.testing.assert_array_equal(client.infer("echo", [entry]).as_numpy("y"), x)
    assert not left(running, engine)
    body, host = container.body, container.body["HostConfig"]
    assert (body["Image"], body["Cmd"][0]) == (IMAGE, "tritonserver")
    assert {"--model-control-mode=explicit", f"--model-repository={repository}"} < set(body["Cmd"])
    assert not [word for word in body["Cmd"] if "client-shm" in word]  # this release does not know it
    assert body["User"] == f"{os.getuid()}:{os.getgid()}"
    assert body["Labels"] == {containers.LABEL: containers.owner()}
    assert (host["IpcMode"], host["AutoRemove"]) == ("host", True)
    (card,) = host["DeviceRequests"]
    assert (card["DeviceIDs"], card["Capabilities"]) == (["GPU-0af1"], [["gpu"]])
    mounts = {mount["Source"]: (mount["Target"], mount.get("ReadOnly")) for mount in host["Mounts"]}
    folders = (str(repository), str(site.store.root))
    assert mounts == {folder: (folder, True) for folder in folders}
    bound = {inside: entry for inside, (entry,) in host["PortBindings"].items()}
    assert set(bound) == {"8000/tcp", "8001/tcp", "8002/tcp"}
    assert {entry["HostIp"] for entry in bound.values()} == {"127.0.0.1"}
    assert bound["8001/tcp"]["HostPort"] == running.grpc_url.rpartition(":")[2]
    assert "successfully loaded 'echo'" in log.read_text()  # its output is kept


def docker_input(x: np.ndarray[Any, Any]) -> Any:
    from tritonclient.grpc import InferInput

    entry = InferInput("x", x.shape, "INT64")
    entry.set_data_from_numpy(x)
    return entry


def test_a_container_that_crashes_ends_the_block_and_leaves_nothing(engine: Any, place: Any) -> None:
    with docker.serve(*place, choice("26.10")) as running:
        (container,) = engine.containers.values()
        assert "--allow-client-shm=true" in container.body["Cmd"]  # this one knows the option
        with connect(running.grpc_url, running.channel) as client:
            client.load_model("echo")
            container.kill(signal.SIGKILL)
            container.process.wait()
            with pytest.raises(InferenceServerException):
                client.infer("echo", [docker_input(np.ones((1, 1), np.int64))], client_timeout=5.0)
    assert not left(running, engine)


def test_a_container_that_ends_at_once_is_reported_with_its_words(engine: Any, place: Any) -> None:
    with (
        pytest.raises(StepError, match=r"(?s)\b3\b.*no kernel image is available") as caught,
        docker.serve(*place, choice("25.02")),
    ):
        pytest.fail("the server counted as ready")
    assert caught.value.log == str(place[2])
    assert not engine.containers


def test_an_image_that_cannot_be_pulled_is_an_error_with_the_registrys_words(engine: Any, place: Any) -> None:
    wrong = r"(?s)tritonserver:21\.02-py3.*manifest unknown.*docker login"
    with pytest.raises(StepError, match=wrong) as caught, docker.serve(*place, choice("21.02")):
        pytest.fail("there is no such image")
    assert caught.value.command == "docker pull nvcr.io/nvidia/tritonserver:21.02-py3"


KILLED = """
import os, subprocess, sys, time
from servegrid.host import containers
one = containers.Container(image=sys.argv[1], name=containers.fresh_name())
words = containers.argv(one, ["python3", "-c", "import time; time.sleep(60)"])
process = subprocess.Popen(words, stdout=subprocess.DEVNULL)
while not containers.pid(one.name):
    time.sleep(0.05)
process.kill()
print(one.name, flush=True)
os.kill(os.getpid(), 9)
"""


def test_only_containers_of_a_killed_owner_are_removed(engine: Any, tmp_path: Path) -> None:
    image = "localhost/servegrid:1"
    containers.pull(image, tmp_path / "pull.log")
    done = subprocess.run(
        [sys.executable, "-c", KILLED, image], stdout=subprocess.PIPE, text=True, timeout=60
    )
    assert done.returncode == -signal.SIGKILL
    name = done.stdout.strip()
    orphan = engine.find(name)
    assert orphan.running
    mine = containers.Container(image=image, name=containers.fresh_name())
    words = containers.argv(mine, ["python3", "-c", "import time; time.sleep(60)"])
    with subprocess.Popen(words) as process:
        while not containers.pid(mine.name):
            assert process.poll() is None
        assert containers.remove_dead() == [name]
        assert not orphan.running
        containers.remove(mine.name)
        assert process.wait(10.0) == 128 + signal.SIGKILL
    assert not engine.containers


def test_formats_that_later_images_cannot_serve_get_the_last_one_that_can() -> None:
    newest = docker.capabilities(ServerChoice(name="docker"))
    assert newest.release == "26.10"
    assert newest.releases == {"tf-savedmodel": "25.02", "tf-trt": "25.02"}
    assert docker.capabilities(choice("24.10")).releases == {}
    with pytest.raises(UserError, match=r"release.*'25\.20'.*'25\.02'"):
        docker.capabilities(choice("25.20"))


def test_missing_parts_are_reported(site: Site, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("DOCKER_HOST", f"unix://{tmp_path / 'no.sock'}")
    monkeypatch.setenv("PATH", str(tmp_path))
    (problem,) = docker.problems(site, choice("24.10"))
    assert problem.startswith("docker: there is no `docker` command here: install Docker's CLI")
