"""The wheel's server on this host: what it opens, what it leaves, and how it fails."""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pytest
import tritonclient.grpc as triton
from google.protobuf import json_format

from servegrid.domain.errors import StepError
from servegrid.domain.values import Interface, Serving
from servegrid.formats.repository import model_config, write_repository
from servegrid.host import libpython
from servegrid.servers import embedded
from servegrid.servers.control import load, unload_all
from servegrid.servers.launch import free_ports
from servegrid.store.site import Site

SHM = Path("/dev/shm")
STATIC = Serving(batching="static", max_batch_size=4)
DYNAMIC = Serving(batching="dynamic", max_batch_size=8, preferred_batch_sizes=(2, 8), max_queue_delay_us=7)


@pytest.fixture(scope="module")
def echo(interface: Any, onnx_artifact: Any) -> tuple[Path, Interface]:
    """Artifact and interface of an identity."""
    io = interface([("x", "int64", (-1, -1))], [("y", "int64", (-1, -1))])
    return onnx_artifact(io, [("Identity", ["x"], ["y"], {})]), io


def as_json(config: Any) -> str:
    return json_format.MessageToJson(config, preserving_proto_field_name=True)


def descendants() -> set[psutil.Process]:
    return set(psutil.Process().children(recursive=True))


def test_server_is_ready_and_has_nothing_loaded(start: Any, echo: Any, tmp_path: Path) -> None:
    with start(tmp_path) as server:
        assert server.running.version == "2.51.0"
        write_repository(server.repository, "echo", "onnx", STATIC, echo[1], echo[0])
        assert server.client.is_server_ready()
        (entry,) = server.client.get_model_repository_index().models
        assert (entry.name, entry.state) == ("echo", "")


def test_server_looks_for_libraries_where_its_caller_does(
    start: Any, site: Site, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LD_LIBRARY_PATH", "/opt/driver/lib")
    with start(tmp_path) as server:
        first, *rest = server.process.environ()["LD_LIBRARY_PATH"].split(":")
    assert [path.name for path in Path(first).iterdir()] == [libpython.find(site.home).name]
    assert rest == ["/opt/driver/lib"]


def test_hosts_with_another_libpython_may_share_a_home(
    site: Site, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    site = site.model_copy(update={"home": tmp_path / "home"})
    found = []
    for host in ("debian", "pyenv", "debian"):
        library = tmp_path / host / "libpython3.so.1.0"
        library.parent.mkdir(exist_ok=True)
        library.write_text(host)
        monkeypatch.setattr(libpython, "find", lambda home, library=library: library)
        found.append(Path(embedded.start_line(site)[0]["LD_LIBRARY_PATH"].split(":")[0]) / library.name)
    assert [path.read_text() for path in found] == ["debian", "pyenv", "debian"]
    assert found[0] == found[2] != found[1]


@pytest.mark.fault("Security", "it listens on loopback only", what="a tritonserver of ours")
def test_server_listens_on_loopback_only(server: Any) -> None:
    listening = [c for c in server.process.net_connections("inet") if c.status == psutil.CONN_LISTEN]
    ports = {int(url.rpartition(":")[2]) for url in (server.running.grpc_url, server.running.http_url)}
    assert ports == {c.laddr.port for c in listening}
    assert {c.laddr.ip.removeprefix("::ffff:") for c in listening} == {"127.0.0.1"}


def test_two_servers_run_side_by_side_and_leave_nothing(
    start: Any, alive: Any, echo: Any, tmp_path: Path
) -> None:
    before = descendants()
    folders = [tmp_path / name for name in ("one", "two")]
    for folder in folders:
        folder.mkdir()
    with start(folders[0]) as one, start(folders[1]) as two:
        for value, server in enumerate((one, two)):
            server.load("echo", *echo)
            x = np.full((2, 3), value)
            np.testing.assert_array_equal(server.ask("echo", {"x": x})["y"], x)
        prefixes = [server.running.shm_prefix for server in (one, two)]
        assert all(list(SHM.glob(f"{prefix}*")) for prefix in prefixes)
        started = descendants() - before
        assert len(started) >= 6  # two supervisors, servers and stubs
    assert not alive(started)
    assert not [path for prefix in prefixes for path in SHM.glob(f"{prefix}*")]


@pytest.mark.fault(
    "Servers", "its stubs and shared memory are gone, the block ends", what="a server is killed"
)
def test_a_killed_server_takes_its_stubs_along_and_the_block_ends(
    start: Any, alive: Any, echo: Any, tmp_path: Path
) -> None:
    before = descendants()
    with start(tmp_path) as server:
        server.load("echo", *echo)
        started = descendants() - before
        prefix = server.running.shm_prefix
        assert server.stubs()
        server.process.kill()
        begin = time.monotonic()
    assert time.monotonic() - begin < 15.0
    assert not alive(started)
    assert not list(SHM.glob(f"{prefix}*"))


def test_unload_all_leaves_a_server_alone_that_no_longer_answers() -> None:
    (port,) = free_ports(1)
    unload_all(f"127.0.0.1:{port}", timeout_s=2.0)


@pytest.fixture
def fake_home(site: Site, tmp_path: Path) -> Callable[[str], Site]:
    """A site whose tritonserver is this shell script."""

    def make(script: str) -> Site:
        home = site.model_copy(update={"home": tmp_path / "home"})
        binary = embedded._binary(home)
        binary.parent.mkdir(parents=True)
        binary.write_text(f"#!/bin/sh\n{script}\n")
        binary.chmod(0o755)
        return home

    return make


@pytest.mark.fault("Servers", "an error with the server's own output", what="a server ends at once")
def test_a_binary_that_ends_at_once_is_reported_with_its_words(fake_home: Any, tmp_path: Path) -> None:
    home = fake_home("echo 'libb64.so.0d: no such file' >&2; exit 3")
    begin = time.monotonic()
    with (
        pytest.raises(StepError, match=r"(?s)\b3\b.*libb64\.so\.0d: no such file") as caught,
        embedded.serve(home, tmp_path, tmp_path / "server.log"),
    ):
        pytest.fail("the server counted as ready")
    assert time.monotonic() - begin < 10.0
    assert caught.value.log == str(tmp_path / "server.log")


@pytest.mark.fault("Servers", "given up and killed", what="a server never gets ready")
def test_a_binary_that_never_gets_ready_is_given_up_and_killed(
    fake_home: Any, alive: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(embedded, "READY_S", 0.5)
    before = descendants()
    with (
        pytest.raises(StepError, match=r"\b0\.5 s"),
        embedded.serve(fake_home("exec sleep 60"), tmp_path, tmp_path / "server.log"),
    ):
        pytest.fail("the server counted as ready")
    assert not alive(descendants() - before)


def test_problems_of_an_empty_home_name_the_command_that_solves_them(site: Site, tmp_path: Path) -> None:
    empty = site.model_copy(update={"home": tmp_path})
    problem, *others = embedded.problems(empty)
    assert all(other.startswith("libpython") for other in others)  # of a host whose own Python has none
    assert "servegrid doctor --install-server" in problem
    assert str(tmp_path) in problem


def test_loading_again_swaps_the_config(server: Any, echo: Any) -> None:
    artifact, io = echo
    write_repository(server.repository, "swap", "onnx", DYNAMIC, io, artifact)
    seen = []
    for serving in (STATIC, DYNAMIC, STATIC):
        config = model_config("swap", "onnx", serving, io)
        load(server.client, "swap", as_json(config), timeout_s=30.0, log=server.running.log)
        found = server.client.get_model_config("swap").config
        seen.append((found.max_batch_size, found.HasField("dynamic_batching")))
        np.testing.assert_array_equal(
            server.ask("swap", {"x": np.ones((3, 2), np.int64)})["y"], np.ones((3, 2), np.int64)
        )
        if serving is DYNAMIC:
            assert list(found.dynamic_batching.preferred_batch_size) == [2, 8]
            assert found.dynamic_batching.max_queue_delay_microseconds == 7
        else:
            with pytest.raises(triton.InferenceServerException, match="batch-size must be <= 4"):
                server.ask("swap", {"x": np.ones((5, 2), np.int64)})
    assert seen == [(4, False), (8, True), (4, False)]


def test_a_refused_config_is_reported_with_the_servers_words(server: Any, echo: Any) -> None:
    artifact, io = echo
    write_repository(server.repository, "refused", "onnx", STATIC, io, artifact)
    config = model_config("refused", "onnx", STATIC, io)
    config.dynamic_batching.preferred_batch_size.append(99)
    with pytest.raises(StepError, match="preferred size must be <= max batch size for refused") as caught:
        load(server.client, "refused", as_json(config), timeout_s=30.0, log=server.running.log)
    assert caught.value.log == server.running.log


def test_a_model_that_raises_as_it_loads_is_reported_with_its_words(
    server: Any, echo: Any, tmp_path: Path
) -> None:
    (tmp_path / "model.onnx").write_bytes(b"not a model")
    write_repository(server.repository, "raises", "onnx", STATIC, echo[1], tmp_path)
    config = model_config("raises", "onnx", STATIC, echo[1])
    with pytest.raises(StepError, match="Protobuf parsing failed"):
        load(server.client, "raises", as_json(config), timeout_s=30.0, log=server.running.log)


@pytest.mark.parametrize("name", ["a b", "Prüf 模", "it's $HOME; (x):y"])
@pytest.mark.fault("Paths and locales", "a model is loaded and answers", what="the server's folders are in")
def test_model_is_served_from_a_folder_of_any_name(
    name: str,
    interface: Any,
    onnx_artifact: Any,
    site: Site,
    link_tools: Any,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    happened: Any,
) -> None:
    """Home, repository and artifact; the backend's shell has no quotes, and its Python knows ASCII alone."""
    monkeypatch.setenv("LC_ALL", "C")
    folder = tmp_path / name
    (folder / "home").mkdir(parents=True)
    link_tools(folder / "home")
    io = interface([("x", "int64", (-1, 2))], [("y", "int64", (-1, 2))])
    artifact = shutil.copytree(onnx_artifact(io, [("Identity", ["x"], ["y"], {})]), folder / "artifact")
    serving = Serving(batching="dynamic", max_batch_size=4)
    write_repository(folder / "repository", "echo", "onnx", serving, io, artifact)
    placed = site.model_copy(update={"home": folder / "home"})
    with (
        embedded.serve(placed, folder / "repository", folder / "server.log") as running,
        triton.InferenceServerClient(running.grpc_url) as client,
    ):
        client.load_model("echo", client_timeout=60.0)
        x = triton.InferInput("x", [1, 2], "INT64")
        x.set_data_from_numpy(np.array([[1, 2]]))
        np.testing.assert_array_equal(client.infer("echo", [x]).as_numpy("y"), [[1, 2]])
    happened("it answers")
