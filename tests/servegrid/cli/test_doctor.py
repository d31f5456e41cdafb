"""The doctor finds this host's problems and names a remedy for each."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest
from prefect.settings import PREFECT_API_URL, temporary_settings

from servegrid.cli import doctor, main
from servegrid.domain.root import ROOT
from servegrid.host import device_locks, libpython
from servegrid.host.cards import gpu_names
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


def test_missing_libpython_is_reported_with_its_package(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(libpython, "find", lambda home: tmp_path / "libpython3.so")
    check = found(default_site())["libpython"]
    assert check.required
    assert "apt-get install libpython" in check.fix
    assert f"{sys.version_info.major}.{sys.version_info.minor}" in check.fix


def test_prefect_server_that_does_not_answer_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    url = "http://127.0.0.1:9/api"
    monkeypatch.setenv("PREFECT_API_URL", url)
    with temporary_settings({PREFECT_API_URL: url}):
        check = found(default_site())["Prefect"]
    assert check.required
    assert "PREFECT_API_URL" in check.fix


def test_lock_folder_that_cannot_be_used_is_reported(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setattr(device_locks, "LOCKS", tmp_path / "file")
    check = found(default_site())["device locks"]
    assert check.required
    assert check.fix.startswith("chmod 1777")


def test_a_check_that_fails_itself_is_a_row_and_the_others_are_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    def fails() -> doctor.Check:
        raise RuntimeError("two\nlines")

    monkeypatch.setattr(doctor, "_shared_memory", fails)
    checks = found(default_site())
    assert checks["/dev/shm"].found == "RuntimeError: two lines"
    assert checks["/dev/shm"].required
    assert checks["ports"].fix == ""


HIDDEN = """
import sys
sys.modules[{module!r}] = None
sys.argv = ["servegrid", "doctor"]
from servegrid.cli.main import main
main()
"""


@pytest.mark.parametrize("module", ["ml_dtypes", "onnx", "tritonclient.grpc"])
def test_a_missing_module_ends_in_no_traceback(module: str) -> None:
    command = [sys.executable, "-c", HIDDEN.format(module=module)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert "Traceback" not in done.stderr + done.stdout
    if done.returncode:
        assert done.returncode == 2
        assert module.split(".")[0] in done.stderr + done.stdout


def distribution(folder: Path, name: str, *requires: str) -> None:
    info = folder / f"{name}-1.0.dist-info"
    info.mkdir(parents=True)
    lines = [
        "Metadata-Version: 2.1",
        f"Name: {name}",
        "Version: 1.0",
        *(f"Requires-Dist: {r}" for r in requires),
    ]
    (info / "METADATA").write_text("\n".join(lines) + "\n")


def test_a_framework_without_what_it_needs_and_one_of_the_host_are_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    needs = ("no-such-dtypes>=0.5", "numpy", "never; extra == 'x'", "older; python_version < '3'")
    distribution(tmp_path, "onnx", *needs)
    monkeypatch.syspath_prepend(tmp_path)
    check = found(default_site())["frameworks"]
    assert "pip install no-such-dtypes (onnx needs it)" in check.fix
    assert f"onnx 1.0 (the host's, in {tmp_path})" in check.found


def test_fixes_are_printed_whole(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    fix = "pip install " + "a-long-name " * 30
    monkeypatch.setattr(doctor, "check", lambda site: [doctor.Check(what="x", found="y", fix=fix)])
    main.doctor()
    assert f"to fix x: {fix}" in capsys.readouterr().out


CARD = "NVIDIA H100 80GB HBM3"


def with_card(monkeypatch: pytest.MonkeyPatch, name: str, capability: str) -> None:
    """A host without a card answers as one with this card would: fake, for there is none."""
    facts = {"compute_capability": capability, "driver": "580.1"}
    monkeypatch.setattr(doctor, "gpu_names", lambda: (name,))
    monkeypatch.setattr(doctor, "card", lambda: facts)


@pytest.mark.parametrize(
    ("name", "capability", "shown", "remedy"),
    [
        (CARD, "9.0", r"NVIDIA H100 80GB HBM3 \(profile h100\)", ""),
        (CARD, "8.0", "profile h100", "compute capability 8.0.*correct profile h100"),
        ("NVIDIA B9000", "13.0", "NVIDIA B9000", "write a profile with a word of this name"),
    ],
)
def test_fake_card_is_matched_with_the_profiles(
    monkeypatch: pytest.MonkeyPatch, name: str, capability: str, shown: str, remedy: str
) -> None:
    monkeypatch.delenv("PREFECT_API_URL", raising=False)
    with_card(monkeypatch, name, capability)
    checks = found(default_site().model_copy(update={"profiles": ROOT / "gpu_profiles"}))
    check = checks["card"]
    if not gpu_names():
        assert checks["product on the card"].fix, "no card computes the product"
    assert re.search(shown, check.found)
    assert re.search(remedy, check.fix) if remedy else check.fix == ""
