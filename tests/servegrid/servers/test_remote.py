"""Attaching to servers that run already: one by TLS with a token and without our shared memory, one that
loads nothing on request."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from google.protobuf import json_format
from pydantic import ValidationError

from servegrid.checks.predictions import predict
from servegrid.domain.errors import StepError, UnsupportedError, UserError
from servegrid.domain.server import ServerChoice
from servegrid.domain.values import ArtifactRef, Endpoint, Interface, Serving
from servegrid.formats.repository import model_config, write_repository
from servegrid.loadgen.base import Point, Target
from servegrid.loadgen.generators import GENERATORS
from servegrid.servers import probe as probing
from servegrid.servers import remote
from servegrid.servers.base import Running
from servegrid.servers.connection import connect
from servegrid.servers.probe import probe
from servegrid.store.build import Workplace
from servegrid.store.site import Site
from tasks.configure import Configured
from tasks.deploy import deploy

WORD = "s3cret"
STATIC = Serving(batching="static", max_batch_size=4)
DYNAMIC = Serving(batching="dynamic", max_batch_size=4, preferred_batch_sizes=(2, 4))


@pytest.fixture(scope="module")
def headers(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("headers") / "headers"
    path.write_text(f"Triton-GRPC-Protocol-token: {WORD}\n")
    return path


@pytest.fixture(scope="module")
def guarded(
    stranger: Any,
    certificates: Any,
    private_shm: Any,
    headers: Path,
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[ServerChoice]:
    """A server with explicit model control, which wants TLS, and a token for all that does something."""
    with stranger(
        tmp_path_factory.mktemp("guarded"),
        "--model-control-mode=explicit",
        *("--grpc-use-ssl=true", f"--grpc-server-cert={certificates.certificate}"),
        f"--grpc-server-key={certificates.key}",
        f"--grpc-restricted-protocol=model-repository,inference,statistics,model-config:token={WORD}",
        within=private_shm,
        choice=lambda port: ServerChoice(
            name="remote",
            url=f"grpcs://localhost:{port}",
            ca_file=certificates.certificate,
            headers_file=headers,
        ),
    ) as choice:
        yield choice


@pytest.fixture(scope="module")
def echo(interface: Any, onnx_artifact: Any) -> tuple[Path, Interface]:
    io = interface([("x", "int64", (-1, -1))], [("y", "int64", (-1, -1))])
    return onnx_artifact(io, [("Identity", ["x"], ["y"], {})]), io


@pytest.fixture(scope="module")
def configured(echo: Any, tmp_path_factory: pytest.TempPathFactory) -> Configured:
    """The repository of a hosted identity."""
    artifact, io = echo
    root = tmp_path_factory.mktemp("repository")
    dynamic = write_repository(root, "echo", "onnx", DYNAMIC, io, artifact)
    static = model_config("echo", "onnx", STATIC, io)
    texts = [json_format.MessageToJson(c, preserving_proto_field_name=True) for c in (static, dynamic)]
    return Configured(repository=root, model="echo", static=texts[0], dynamic=texts[1])


@pytest.fixture(scope="module")
def put(samples: Path, site: Site, configured: Configured, tmp_path_factory: pytest.TempPathFactory) -> Any:
    """`put(running, serving)`: what the stage does."""
    root = tmp_path_factory.mktemp("site")
    (root / "home" / "store").mkdir(parents=True)
    (root / "home" / "store" / "samples").symlink_to(samples)
    at = Workplace(
        site=site.model_copy(update={"home": root / "home"}),
        plugin=root,
        logs=root,
        profile="cpu",
        cell="echo",
        timeout_s=60.0,
    )
    ref = ArtifactRef(digest="0", path="samples", size=1)

    def stage(running: Running, serving: Serving) -> Endpoint:
        return deploy.fn(running, configured, serving, ref, at)

    return stage


def test_the_probe_finds_the_servers_capabilities(guarded: ServerChoice) -> None:
    found = probe(guarded)
    assert (found.version, found.backends, found.loaded) == ("2.51.0", ("python",), ())
    assert (found.control, found.shared_memory) == (True, False)
    assert found.lacks == ["it does not see this host's shared memory: tensors travel in the requests"]
    assert remote.capabilities(guarded).release == "24.10"


def test_a_backend_that_does_not_answer_in_time_counts_as_absent_and_no_probe_stays(
    guarded: ServerChoice, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    with connect(guarded.address, guarded.channel) as client:
        assert client.is_server_live()
        monkeypatch.setattr(probing, "LOAD_S", 0.02)  # a python model's process takes longer to start
        assert not probing._has_backend(client, "python", guarded)
        states = {m.name: m.state for m in client.get_model_repository_index().models}
    assert "within 0.02 s whether it has the python backend: it counts as absent" in caplog.text
    assert "may have stayed" not in caplog.text
    assert {state for name, state in states.items() if "probe" in name} <= {"UNAVAILABLE", "UNLOADING"}


@pytest.mark.fault(
    "Servers",
    "an error that names the options to check, without the token",
    what="a remote server refuses, for want of",
)
@pytest.mark.parametrize("lost", ["ca_file", "headers_file", "url"])
def test_a_refused_connection_names_the_options_to_check(guarded: ServerChoice, lost: str) -> None:
    changes = (
        {"url": guarded.url.replace("grpcs:", "grpc:"), "ca_file": None} if lost == "url" else {lost: None}
    )  # type: ignore[union-attr]
    (problem,) = remote.problems(None, guarded.model_copy(update=changes))  # type: ignore[arg-type]  # not read
    assert f"no Triton answers at {changes.get('url', guarded.url)}" in problem
    assert WORD not in problem


@pytest.mark.fault("Security", "it is in no log and no result", what="a token for a remote server")
def test_a_cell_is_sent_measured_and_taken_away_again(
    guarded: ServerChoice, configured: Configured, put: Any, samples: Path, site: Site, tmp_path: Path
) -> None:
    log = tmp_path / "server.log"
    with remote.serve(site, configured.repository, log, guarded) as running:
        assert (running.provider, running.models, running.pid) == ("remote", "upload", None)
        endpoint = put(running, DYNAMIC)
        assert endpoint.load_s > 0
        with np.load(samples / "samples.npz") as file:
            np.testing.assert_array_equal(predict(endpoint, samples, 4, 60.0)["y"], file["x/x"])
        point = Point(batch=2, concurrency=2, request_count=20, shared_memory="none", warm_up=True)
        target = Target(endpoint=endpoint, samples=samples, logs=tmp_path, name="it")
        measured = GENERATORS["client"].measure(point, target, site)
        assert measured.throughput > 0
        assert measured.server_compute_infer_ms > 0
        with connect(guarded.address, guarded.channel) as client:
            put(running, STATIC)  # in place of the other
            assert not client.get_model_config("echo").config.HasField("dynamic_batching")
            with (
                pytest.raises(StepError, match=r"\becho\b"),
                remote.serve(site, configured.repository, log, guarded),
            ):
                pytest.fail("another's model would have been replaced")
    with connect(guarded.address, guarded.channel) as client:
        assert not client.is_model_ready("echo")
    written = "".join(path.read_text() for path in tmp_path.rglob("*") if path.is_file())
    assert "attached to Triton 2.51.0" in written
    assert WORD not in written


@pytest.mark.check
@pytest.mark.parametrize("generator", GENERATORS)
def test_a_server_is_reached_and_measured_by_ipv6(
    generator: str,
    ipv6: None,
    stranger: Any,
    configured: Configured,
    put: Any,
    samples: Path,
    site: Site,
    tmp_path: Path,
) -> None:
    if problem := GENERATORS[generator].problem(site):
        pytest.skip(problem)
    options = ("--grpc-address=[::1]", "--model-control-mode=explicit")

    def choice(port: int) -> ServerChoice:
        return ServerChoice(name="remote", url=f"grpc://[::1]:{port}")

    with (
        stranger(tmp_path, *options, choice=choice) as chosen,
        remote.serve(site, configured.repository, tmp_path / "log", chosen) as running,
    ):
        assert chosen.address.startswith("[::1]:")
        endpoint = put(running, DYNAMIC)
        point = Point(batch=2, concurrency=2, request_count=20, shared_memory="none", warm_up=True)
        target = Target(endpoint=endpoint, samples=samples, logs=tmp_path, name="it")
        assert GENERATORS[generator].measure(point, target, site).throughput > 0


WRONG_URLS = (
    "h:1", "http://h:1", "grpc://h", "grpc://h:0", "grpc://h:65536", "grpc://h:1/x", "grpc://::1:8001",
    "grpc://[::1]", "grpc://[h]:1", "grpc://[::1:1", "grpc://:1",
)  # fmt: skip


@pytest.mark.parametrize("url", WRONG_URLS)
def test_a_url_that_is_none_is_refused_with_its_form(url: str) -> None:
    with pytest.raises(ValidationError, match=r"grpc://HOST:PORT.*\[::1\]"):
        ServerChoice(name="remote", url=url)


def test_a_server_without_model_control_serves_what_it_has_loaded(
    stranger: Any, configured: Configured, echo: Any, put: Any, site: Site, tmp_path: Path
) -> None:
    artifact, io = echo
    write_repository(tmp_path / "repository", "echo", "onnx", DYNAMIC, io, artifact)

    def choice(port: int) -> ServerChoice:
        return ServerChoice(name="remote", url=f"grpc://127.0.0.1:{port}")

    with (
        stranger(tmp_path, choice=choice) as chosen,
        remote.serve(site, configured.repository, tmp_path / "log", chosen) as running,
    ):
        capabilities = remote.capabilities(chosen)
        assert (capabilities.loads, capabilities.loaded, capabilities.backends) == (
            False,
            ("echo",),
            ("python",),
        )
        assert capabilities.shared_memory
        assert running.models == "fixed"
        endpoint = put(running, DYNAMIC)
        assert endpoint.load_s is None
        with pytest.raises(UnsupportedError, match=r"dynamic batching True.*False"):
            put(running, STATIC)
        with connect(chosen.address, chosen.channel) as client:
            assert client.is_model_ready("echo")


@pytest.mark.fault("Security", "an error without its content", what="a damaged file of headers")
def test_unreadable_files_are_refused_without_their_content(tmp_path: Path) -> None:
    path = tmp_path / "headers"
    choice = ServerChoice(name="remote", url="grpc://127.0.0.1:1", headers_file=path)
    with pytest.raises(UserError, match=rf"headers_file.*{path}"):
        probe(choice)
    path.write_text(f"\nauthorization {WORD}\n")
    with pytest.raises(UserError, match=r"line 2.*`name: value`") as caught:
        probe(choice)
    assert WORD not in str(caught.value)
