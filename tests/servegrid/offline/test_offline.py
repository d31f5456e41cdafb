"""The folder for a host without a network. `make bare-test` installs from one, without a network."""

from __future__ import annotations

import importlib.metadata
import json
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from servegrid.domain.root import ROOT
from servegrid.host import libpython
from servegrid.host.apt import KEPT, AptError, kept
from servegrid.offline import download, install
from servegrid.offline.layout import EXTRAS, Folder

OWN = f"{sys.version_info.major}.{sys.version_info.minor}"


def test_folder_has_the_extras_that_make_installs() -> None:
    (named,) = re.findall(r"--editable '\.\[([a-z,-]+)\]'", (ROOT / "Makefile").read_text())
    assert set(EXTRAS) == set(named.split(","))


def test_requirements_are_decided_for_the_python_and_named_once() -> None:
    lines = download._requirements(OWN)
    names = [re.split(r"[^a-zA-Z0-9._-]", line)[0] for line in lines]
    assert len(names) == len(set(names))
    assert {"prefect", "torch", "tensorflow-cpu", "onnxruntime", "pytest", "setuptools"} <= set(names)
    assert not any(";" in line for line in lines), "markers are of the host that downloads"


def bare(*arguments: str) -> tuple[int, str]:
    """`python3 -m servegrid.offline` by a Python without any package."""
    words = [sys.executable, "-S", "-m", "servegrid.offline", "install", *arguments]
    done = subprocess.run(words, capture_output=True, text=True, cwd=ROOT)
    return done.returncode, done.stderr


@pytest.fixture
def folder(tmp_path: Path) -> Folder:
    found = Folder(tmp_path / "offline")
    found.wheels.mkdir(parents=True)
    found.facts.write_text(json.dumps({"python": OWN}))
    found.requirements.write_text("numpy>=2\n")
    return found


def test_bare_python_is_refused_in_one_line_where_the_folder_is_none(tmp_path: Path) -> None:
    code, error = bare(str(tmp_path))
    assert code == 2
    assert error.count("\n") == 1 and str(tmp_path) in error and "offline download" in error


def test_folder_for_another_python_is_refused_with_both_versions(folder: Folder) -> None:
    folder.facts.write_text(json.dumps({"python": "3.9"}))
    code, error = bare(str(folder.path))
    assert code == 2
    assert error.count("\n") == 1 and "3.9" in error and f"--python {OWN}" in error


def test_package_that_the_host_lacks_cannot_be_kept(folder: Folder) -> None:
    code, error = bare(str(folder.path), "--use-host", "no-such-framework")
    assert code == 2
    assert error.count("\n") == 1 and "no-such-framework" in error and sys.executable in error


def test_kept_package_has_the_hosts_version_and_another_build_has_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert install._version("numpy") == importlib.metadata.version("numpy")
    info = tmp_path / "framework_gpu-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: framework-gpu\nVersion: 1.0\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    assert install._version("framework") is None


@pytest.fixture
def packages(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with a real .deb file, whose version has an epoch."""
    if not shutil.which("dpkg-deb"):
        pytest.skip("dpkg-deb makes the package")
    root = tmp_path / "root"
    (root / "DEBIAN").mkdir(parents=True)
    control = "Package: libtiny\nVersion: 1:2.0-1\nArchitecture: all\nMaintainer: a\nDescription: a\n"
    (root / "DEBIAN" / "control").write_text(control)
    (root / "usr").mkdir()
    (root / "usr" / "tiny").write_text("tiny")
    found = tmp_path / "packages"
    found.mkdir()
    file = found / "libtiny_1%3a2.0-1_all.deb"
    subprocess.run(["dpkg-deb", "--build", root, file], check=True, capture_output=True)
    monkeypatch.setenv(KEPT, str(found))
    return found


def test_kept_package_is_unpacked_in_place_of_a_mirrors(packages: Path, tmp_path: Path) -> None:
    found = kept()
    assert found
    assert found.versions("libtiny") == ["1:2.0-1"]
    found.unpack(["libtiny=1:2.0-1"], tmp_path / "unpacked")
    assert (tmp_path / "unpacked" / "usr" / "tiny").read_text() == "tiny"
    with pytest.raises(AptError, match="libother"):
        found.unpack(["libother"], tmp_path / "unpacked")


def test_libpython_of_another_patch_release_is_not_taken(packages: Path) -> None:
    (packages / "libtiny_1%3a2.0-1_all.deb").rename(packages / f"libpython{OWN}_{OWN}.99-1_amd64.deb")
    found = kept()
    assert found
    with pytest.raises(AptError, match=rf"{OWN}\.99-1"):
        libpython.package(found)
