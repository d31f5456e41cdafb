"""Packages got by the real apt, from a repository on disk; libpython among them."""

from __future__ import annotations

import platform
import shutil
import subprocess
import sys
import sysconfig
from collections.abc import Callable
from pathlib import Path

import pytest

from servegrid.host import apt, before_install, libpython
from servegrid.host.apt import Apt, AptError

pytestmark = pytest.mark.skipif(not shutil.which("apt-get"), reason="this host has no apt-get")
PACKAGE = f"libpython{sys.version_info.major}.{sys.version_info.minor}"
LIBRARY = f"{PACKAGE}.so.1.0"
CONTROL = """Package: {name}
Version: {version}
Architecture: all
Maintainer: nobody <nobody@localhost>
Description: a package of a test
"""


@pytest.fixture
def sources(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Path]:
    """`sources(name, version, files)`: a repository with this package, and no other source of apt."""

    def make(name: str, version: str, files: dict[str, str]) -> Path:
        repository = tmp_path / "repository"
        root = repository / "root"
        (root / "DEBIAN").mkdir(parents=True)
        (root / "DEBIAN" / "control").write_text(CONTROL.format(name=name, version=version))
        for path, text in files.items():
            (root / path).parent.mkdir(parents=True, exist_ok=True)
            (root / path).write_text(text)
        deb = repository / f"{name}.deb"
        subprocess.run(["dpkg-deb", "--build", root, deb], check=True, stdout=subprocess.DEVNULL)
        index = CONTROL.format(name=name, version=version) + f"Filename: ./{deb.name}\n"
        index += f"Size: {deb.stat().st_size}\nSHA256: {_sha256(deb)}\n\n"
        (repository / "Packages").write_text(index)
        return _only_source(tmp_path, monkeypatch, f"deb [trusted=yes] file:{repository} ./")

    return make


def _sha256(path: Path) -> str:
    return subprocess.run(["sha256sum", path], check=True, capture_output=True, text=True).stdout.split()[0]


def _only_source(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, line: str) -> Path:
    path, config = tmp_path / "sources.list", tmp_path / "apt.conf"
    path.write_text(f"{line}\n")
    config.write_text(f'Dir::Etc::SourceList "{path}";\nDir::Etc::SourceParts "-";\n')
    monkeypatch.setenv("APT_CONFIG", str(config))
    return path


@pytest.fixture
def no_libpython(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An interpreter without the shared library."""
    variables = sysconfig.get_config_vars()
    monkeypatch.setitem(variables, "LIBDIR", str(tmp_path / "no-such-folder"))
    monkeypatch.setitem(variables, "INSTSONAME", LIBRARY)


def test_a_package_is_unpacked_below_the_given_folder(sources: Callable[..., Path], tmp_path: Path) -> None:
    path = sources("some-library", "1.2-3", {"usr/lib/some.so": "library"})
    found = Apt(tmp_path / "apt", path)
    assert found.versions("some-library") == ["1.2-3"]
    assert found.versions("no-such-package") == []
    found.unpack(["some-library=1.2-3"], tmp_path / "root")
    assert (tmp_path / "root" / "usr" / "lib" / "some.so").read_text() == "library"


def test_a_mirror_out_of_reach_is_an_error_of_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = _only_source(tmp_path, monkeypatch, "deb http://127.0.0.1:9/debian bookworm main")
    with pytest.raises(AptError) as caught:
        Apt(tmp_path / "apt", path)
    assert len(str(caught.value).splitlines()) == 1
    assert "127.0.0.1" in str(caught.value)


def test_libpython_of_this_version_is_got_where_the_host_has_none(
    sources: Callable[..., Path], no_libpython: None, tmp_path: Path
) -> None:
    sources(PACKAGE, f"{platform.python_version()}-1", {f"usr/lib/any/{LIBRARY}": "library"})
    home = tmp_path / "home"
    assert not libpython.find(home).is_file()
    assert libpython.install(home) == libpython.find(home)
    assert libpython.find(home).read_text() == "library"
    assert [path.name for path in libpython.find(home).parent.iterdir()] == [LIBRARY]


def test_libpython_of_another_version_is_refused(
    sources: Callable[..., Path], no_libpython: None, tmp_path: Path
) -> None:
    sources(PACKAGE, "3.0.1-1", {f"usr/lib/any/{LIBRARY}": "library"})
    problem = before_install.problem(tmp_path / "home")
    assert problem
    for word in (platform.python_version(), "3.0.1-1", f"apt-get install {PACKAGE}", "uv python install"):
        assert word in problem
    assert not libpython.find(tmp_path / "home").exists()


def test_without_apt_the_way_to_libpython_is_named(
    no_libpython: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    problem = before_install.problem(tmp_path / "home")
    assert problem and "apt-get" in problem and "make PYTHON=" in problem
    assert len(problem.splitlines()) == 1


def test_tools_that_are_absent_are_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(AptError) as caught:
        Apt(tmp_path / "apt")
    assert all(tool in str(caught.value) for tool in apt.TOOLS)
