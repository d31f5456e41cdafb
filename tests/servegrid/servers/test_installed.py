"""A Triton that is installed: its layout, its release, its backends. The binary and the Python backend are
those of the server's wheel, laid out as NVIDIA's containers have them."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from servegrid.domain.errors import UserError
from servegrid.domain.server import ServerChoice
from servegrid.servers import embedded, installed
from servegrid.servers.connection import connect
from servegrid.store.site import Site, default_site

OWN = f"{sys.version_info.major}.{sys.version_info.minor}"
MODEL = """
class TritonPythonModel:
    def execute(self, requests):
        return []
"""
CONFIG = """
name: "tiny"
backend: "python"
max_batch_size: 1
input { name: "x" data_type: TYPE_FP32 dims: [1] }
output { name: "y" data_type: TYPE_FP32 dims: [1] }
"""


@pytest.fixture
def site(embedded_server: Site) -> Site:
    return embedded_server


@pytest.fixture(scope="module")
def embedded_server() -> Site:
    found = default_site()
    if embedded.problems(found):
        pytest.skip("; ".join(embedded.problems(found)))
    return found


@pytest.fixture
def folder(site: Site, tmp_path: Path) -> Path:
    """/opt/tritonserver of a container whose Python is this one, without its libraries."""
    wheel = site.home / "tritonserver" / "pytriton" / "tritonserver"
    found = tmp_path / "tritonserver"
    python = found / "backends" / "python"
    python.mkdir(parents=True)
    (found / "bin").symlink_to(wheel / "bin")
    for name in ("libtriton_python.so", "triton_python_backend_utils.py"):
        (python / name).symlink_to(wheel / "backends" / "python" / name)
    # A copy would not find the wheel's CUDA runtime, which lies beside its stubs.
    stub = "triton_python_backend_stub"
    (python / stub).symlink_to(wheel / "python_backend_stubs" / OWN / stub)
    return found


def add_backend(folder: Path, name: str) -> None:
    """A native backend that can be seen, and not be loaded."""
    (folder / name).mkdir(parents=True)
    (folder / name / f"libtriton_{name}.so").touch()


def test_release_is_that_of_the_servers_own_version(folder: Path) -> None:
    found = installed.capabilities(ServerChoice(name="installed", folder=folder))
    assert found.release == "24.10"
    assert found.backends == ("python",)


def test_release_of_an_image_is_read_from_its_file(folder: Path) -> None:
    (folder / "TRITON_VERSION").write_text("2.55.0\n")
    assert installed.capabilities(ServerChoice(name="installed", folder=folder)).release == "25.02"
    (folder / "TRITON_VERSION").write_text("9.9.9\n")
    installed._version.cache_clear()
    with pytest.raises(UserError, match=r"9\.9\.9.*--triton-release"):
        installed.capabilities(ServerChoice(name="installed", folder=folder))
    given = ServerChoice(name="installed", folder=folder, triton_release="25.02")
    assert installed.capabilities(given).release == "25.02"


def test_native_backends_are_found_and_more_are_added(folder: Path, tmp_path: Path) -> None:
    add_backend(folder / "backends", "onnxruntime")
    (folder / "backends" / "identity").mkdir()  # without a library
    add_backend(tmp_path / "more", "pytorch")
    choice = ServerChoice(name="installed", folder=folder, backends=tmp_path / "more")
    assert installed.capabilities(choice).backends == ("onnxruntime", "python", "pytorch")
    (tmp_path / "empty").mkdir()
    with pytest.raises(UserError, match=r"--backend-directory.*libtriton_onnxruntime\.so"):
        installed.capabilities(choice.model_copy(update={"backends": tmp_path / "empty"}))


def test_python_backend_for_another_python_hosts_nothing(folder: Path) -> None:
    stub = folder / "backends" / "python" / "triton_python_backend_stub"
    stub.unlink()
    stub.write_bytes(b"\x7fELF...libpython3.8.so.1.0...")
    found = installed.capabilities(ServerChoice(name="installed", folder=folder))
    assert found.backends == ()
    assert "3.8" in found.why_not_python and OWN in found.why_not_python


def test_python_backend_of_the_added_folder_is_judged_by_its_own_stub(folder: Path, tmp_path: Path) -> None:
    choice = ServerChoice(name="installed", folder=folder, backends=tmp_path / "more")
    (folder / "backends" / "python").rename(tmp_path / "python")
    (tmp_path / "more").mkdir()
    (tmp_path / "python").rename(tmp_path / "more" / "python")
    assert installed.capabilities(choice.model_copy(update={"triton_release": "24.10"})).backends == (
        "python",
    )


def test_server_is_found_on_path_or_named_as_missing(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(installed, "DEFAULT", folder.with_name("nowhere"))
    (problem,) = installed.problems(default_site(), ServerChoice(name="installed"))
    assert "--server-folder" in problem and "nowhere" in problem
    (problem,) = installed.problems(
        default_site(), ServerChoice(name="installed", folder=folder / "backends")
    )
    assert "bin/tritonserver" in problem
    monkeypatch.setattr(installed, "DEFAULT", folder)
    assert installed.problems(default_site(), ServerChoice(name="installed")) == []


@pytest.mark.parametrize("kind", ["installed", "embedded"])
def test_server_starts_with_its_backends_and_those_of_another_folder(
    kind: str, folder: Path, site: Site, tmp_path: Path
) -> None:
    model = tmp_path / "models" / "tiny"
    (model / "1").mkdir(parents=True)
    (model / "1" / "model.py").write_text(MODEL)
    (model / "config.pbtxt").write_text(CONFIG)
    add_backend(tmp_path / "more", "pytorch")
    provider = {"installed": installed, "embedded": embedded}[kind]
    choice = ServerChoice(name=kind, folder=folder, backends=tmp_path / "more")
    assert "pytorch" in provider.capabilities(choice).backends
    with provider.serve(site, tmp_path / "models", tmp_path / "log", choice) as running:
        assert running.provider == kind
        with connect(running.grpc_url, running.channel) as client:
            client.load_model("tiny")
            assert client.is_model_ready("tiny")
