"""The checks of `make` before it downloads anything."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from pathlib import Path

import pytest

from servegrid.domain.root import ROOT
from servegrid.host import before_install, libpython
from servegrid.store.site import Site


def test_this_host_has_all_requirements(site: Site) -> None:
    assert before_install.problem(site.home) is None


def test_only_the_standard_library_is_imported(site: Site) -> None:
    """Nothing is installed yet when it runs."""
    command = [sys.executable, "-S", "-m", "servegrid.host.before_install", str(site.home)]
    subprocess.run(command, check=True, cwd=ROOT)


@pytest.mark.parametrize("version", [(3, 10, 0), (3, 13, 5)])
def test_another_python_is_refused_with_the_way_to_one(
    version: tuple[int, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(before_install.sys, "version_info", version)
    problem = before_install.problem(tmp_path)
    assert problem and "uv python install 3.12" in problem and "make PYTHON=" in problem
    assert len(problem.splitlines()) == 1


def test_python_without_venv_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    problem = before_install.problem(tmp_path)
    assert problem and "-venv" in problem and sys.executable in problem


def test_a_small_disk_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(before_install, "FREE_GB", 10**9)
    problem = before_install.problem(tmp_path)
    assert problem and "GB" in problem and str(Path.cwd()) in problem


def test_the_hosts_own_libpython_is_used(site: Site) -> None:
    assert libpython.install(site.home) == libpython.find(site.home)
