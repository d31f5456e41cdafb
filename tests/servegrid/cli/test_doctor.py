"""The doctor: what it finds on this host, and that it says how to mend what is wrong."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest
from prefect.settings import PREFECT_API_URL, temporary_settings

from servegrid.cli import doctor
from servegrid.domain.root import ROOT
from servegrid.host import environment, libpython
from servegrid.host.environment import gpu_names
from servegrid.store.site import Site, default_site


def found(site: Site) -> dict[str, doctor.Check]:
    return {check.what: check for check in doctor.check(site)}


def test_every_part_of_a_host_is_looked_at(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PREFECT_API_URL", raising=False)
    checks = found(default_site())
    for what in (
        "tritonserver",
        "libpython",
        "perf_analyzer",
        "frameworks",
        "card",
        "driver",
        "disk",
        "ports",
    ):
        assert checks[what].found, what
    assert checks["ports"].fix == checks["device locks"].fix == checks["libpython"].fix == ""
    assert checks["Prefect"].fix == ""
    if not gpu_names():
        assert checks["card"].found.startswith("none")


def test_missing_libpython_is_told_with_how_to_get_it(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(libpython, "find", lambda home: tmp_path / "libpython3.so")
    check = found(default_site())["libpython"]
    assert check.required
    assert "apt-get install libpython" in check.fix
    assert f"{sys.version_info.major}.{sys.version_info.minor}" in check.fix


def test_prefect_server_that_does_not_answer_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    url = "http://127.0.0.1:9/api"
    monkeypatch.setenv("PREFECT_API_URL", url)
    with temporary_settings({PREFECT_API_URL: url}):
        check = found(default_site())["Prefect"]
    assert check.required
    assert "PREFECT_API_URL" in check.fix


def test_lock_folder_that_cannot_be_used_is_told(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setattr(environment, "LOCKS", tmp_path / "file")
    check = found(default_site())["device locks"]
    assert check.required
    assert check.fix.startswith("chmod 1777")


CARD = "NVIDIA H100 80GB HBM3"


def with_card(monkeypatch: pytest.MonkeyPatch, name: str, capability: str) -> None:
    """A host without a card answers as one with this card would: fake, for there is none."""
    facts = {"compute_capability": capability, "driver": "580.1"}
    monkeypatch.setattr(doctor, "gpu_names", lambda: (name,))
    monkeypatch.setattr(doctor, "card", lambda: facts)


@pytest.mark.parametrize(
    ("name", "capability", "said", "mend"),
    [
        (CARD, "9.0", r"NVIDIA H100 80GB HBM3 \(profile h100\)", ""),
        (CARD, "8.0", "profile h100", "compute capability 8.0.*correct profile h100"),
        ("NVIDIA B9000", "13.0", "NVIDIA B9000", "write a profile with a word of this name"),
    ],
)
def test_fake_card_is_matched_with_the_profiles(
    monkeypatch: pytest.MonkeyPatch, name: str, capability: str, said: str, mend: str
) -> None:
    monkeypatch.delenv("PREFECT_API_URL", raising=False)
    with_card(monkeypatch, name, capability)
    check = found(default_site().model_copy(update={"profiles": ROOT / "gpu_profiles"}))["card"]
    assert re.search(said, check.found)
    assert re.search(mend, check.fix) if mend else check.fix == ""
