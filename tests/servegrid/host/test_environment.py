"""The description of this host and the lock of its device."""

from __future__ import annotations

import os
import select
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator
from importlib.metadata import version
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from servegrid.domain.plugins import load_profile
from servegrid.domain.profile import GpuProfile
from servegrid.domain.root import ROOT
from servegrid.host import environment
from servegrid.host.environment import (
    card,
    describes,
    device_lock,
    extras,
    gpu_names,
    host,
    matches,
    missing,
    provider,
    versions,
)
from servegrid.store.site import default_site

HOLDER = """
import os, pathlib, sys
from servegrid.host import environment
from servegrid.host.environment import card_uuid, device_lock
card_uuid()  # another user may not be able to read the interpreter's modules
environment.LOCKS = pathlib.Path(sys.argv[1])
os.setuid(int(sys.argv[4]))
print("asking", flush=True)
with device_lock(sys.argv[2], exclusive=sys.argv[3] == "exclusive"):
    print("held", flush=True)
    sys.stdin.read()
"""


@pytest.fixture
def folder(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The folder of the locks, in one that every user may enter, as /tmp is."""
    with tempfile.TemporaryDirectory() as name:
        Path(name).chmod(0o1777)
        locks = Path(name) / "locks"
        monkeypatch.setattr(environment, "LOCKS", locks)
        yield locks


@pytest.fixture
def processes() -> Iterator[list[subprocess.Popen[str]]]:
    started: list[subprocess.Popen[str]] = []
    yield started
    for process in started:
        process.kill()
        process.communicate()


def start(folder: Path, device: str, how: str, user: int = os.getuid()) -> subprocess.Popen[str]:
    """A process that asks for the lock, and holds it until its input is closed."""
    process = subprocess.Popen(
        [sys.executable, "-c", HOLDER, str(folder), device, how, str(user)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "asking\n"
    return process


def held(process: subprocess.Popen[str]) -> bool:
    """Wait until the process says that it holds the lock."""
    assert process.stdout is not None
    return process.stdout.readline() == "held\n"


def waits(process: subprocess.Popen[str]) -> bool:
    """True if the process waits for the lock and does not get it within an ample time."""
    assert process.stdout is not None
    return not select.select([process.stdout], [], [], 0.4)[0] and process.poll() is None


@pytest.mark.parametrize(
    ("first", "second"), [("exclusive", "shared"), ("exclusive", "exclusive"), ("shared", "exclusive")]
)
def test_device_held_alone_is_held_by_nobody_else(
    folder: Path, processes: list[subprocess.Popen[str]], first: str, second: str
) -> None:
    processes.append(start(folder, "card", first))
    assert held(processes[0])
    processes.append(start(folder, "card", second))
    assert waits(processes[1])
    processes[0].communicate()  # closes its input: the block ends
    assert held(processes[1])


def test_builds_share_the_device(folder: Path, processes: list[subprocess.Popen[str]]) -> None:
    for _ in range(2):
        processes.append(start(folder, "card", "shared"))
    assert all(map(held, processes))


def test_builds_that_come_later_do_not_overtake_a_measurement_that_waits(
    folder: Path, processes: list[subprocess.Popen[str]]
) -> None:
    processes.append(start(folder, "card", "shared"))
    assert held(processes[0])
    processes.append(start(folder, "card", "exclusive"))
    assert waits(processes[1])
    processes.append(start(folder, "card", "shared"))
    assert waits(processes[2])
    processes[0].communicate()
    assert held(processes[1])
    assert waits(processes[2])
    processes[1].communicate()
    assert held(processes[2])


def test_each_device_has_its_own_lock(folder: Path, processes: list[subprocess.Popen[str]]) -> None:
    for device in ("card", "other"):
        processes.append(start(folder, device, "exclusive"))
    assert all(map(held, processes))


def test_lock_is_free_when_its_holder_was_killed(
    folder: Path, processes: list[subprocess.Popen[str]]
) -> None:
    processes.append(start(folder, "card", "exclusive"))
    assert held(processes[0])
    processes.append(start(folder, "card", "exclusive"))
    assert waits(processes[1])
    processes[0].kill()
    assert held(processes[1])


def test_lock_is_free_after_a_block_that_raised(folder: Path, processes: list[subprocess.Popen[str]]) -> None:
    with pytest.raises(ValueError, match="inside"), device_lock("card", exclusive=True):
        raise ValueError("inside")
    processes.append(start(folder, "card", "exclusive"))
    assert held(processes[0])


def test_waiting_for_the_device_is_logged(
    folder: Path,
    processes: list[subprocess.Popen[str]],
    caplog: pytest.LogCaptureFixture,
    wait_for: Callable[..., Any],
) -> None:
    caplog.set_level("INFO", "servegrid")
    with device_lock("card", exclusive=True):
        assert not caplog.messages
    processes.append(start(folder, "card", "exclusive"))
    assert held(processes[0])

    def end_the_holder() -> None:
        try:
            wait_for(lambda: caplog.messages, 20)
        finally:
            processes[0].kill()

    other = threading.Thread(target=end_the_holder)
    other.start()
    with device_lock("card", exclusive=False):
        assert caplog.messages == ["waiting for card: another campaign builds or measures there"]
    other.join()


@pytest.mark.check
@pytest.mark.skipif(os.geteuid() != 0, reason="becoming another user needs root")
def test_users_of_one_host_share_the_lock(folder: Path, processes: list[subprocess.Popen[str]]) -> None:
    with device_lock("card", exclusive=False):
        pass
    processes.append(start(folder, "card", "shared", user=65534))
    assert held(processes[0])


def test_versions_are_those_installed() -> None:
    found = versions(["pydantic", "no-such-distribution"])
    assert found == {"no-such-distribution": "absent", "pydantic": version("pydantic")}
    assert missing(["pydantic", "no-such-distribution"]) == ["no-such-distribution"]


def test_a_package_counts_under_any_distribution_that_brings_it() -> None:
    assert versions(["tensorflow"]) == {"tensorflow": version("tensorflow-cpu")}
    assert missing(["tensorflow", "onnxruntime"]) == []
    assert provider("tensorflow") == "tensorflow-cpu"
    assert provider("no-such-distribution") is None


def test_extras_that_bring_a_distribution_are_named() -> None:
    assert extras(["torch", "monai"]) == ["torch"]
    assert extras(["tensorflow", "onnxruntime"]) == ["tensorflow", "onnx"]
    assert extras(["tensorrt"]) == ["tensorrt-rtx"]
    assert extras(["no-such-distribution"]) == []


def test_host_is_this_one() -> None:
    assert host().cores == len(os.sched_getaffinity(0))
    assert host().gpu
    assert 0 < host().memory_gb < 100_000
    assert (host().driver is None) == (not gpu_names())


def test_the_host_has_its_cards_capability_and_driver() -> None:
    assert set(card()) == ({"compute_capability", "driver"} if gpu_names() else set())


@pytest.mark.parametrize(
    ("visible", "used"),
    [(None, 0), ("", 0), ("2", 2), ("3,1", 3), ("GPU-1", "GPU-1"), ("GPU-2,GPU-1", "GPU-2")],
)
def test_used_card_is_the_first_visible_one_of_a_fake_driver(
    monkeypatch: pytest.MonkeyPatch, visible: str | None, used: int | str
) -> None:
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    if visible is not None:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
    fake = SimpleNamespace(nvmlDeviceGetHandleByIndex=int, nvmlDeviceGetHandleByUUID=str)
    assert environment.used_card(fake) == used


def test_each_card_of_a_host_has_its_own_lock_with_a_fake_driver(monkeypatch: pytest.MonkeyPatch) -> None:
    names = []
    for uuid in ("GPU-1", "GPU-2"):
        monkeypatch.setattr(environment, "card_uuid", lambda uuid=uuid: uuid)
        names += [environment._lock_name(profile) for profile in ("h100", "h100-with-tf-trt", "cpu")]
    assert names == ["GPU-1", "GPU-1", "cpu", "GPU-2", "GPU-2", "cpu"]


def test_started_processes_see_one_card_of_a_fake_driver(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "1,0")
    monkeypatch.setattr(environment, "card_uuid", lambda: "GPU-2")
    environment.pin_card()
    assert os.environ["CUDA_VISIBLE_DEVICES"] == "GPU-2"
    monkeypatch.setattr(environment, "card_uuid", lambda: None)
    environment.pin_card()
    assert os.environ["CUDA_VISIBLE_DEVICES"] == "GPU-2"


def test_the_device_is_the_used_card_of_a_fake_driver(monkeypatch: pytest.MonkeyPatch) -> None:
    profiles = {name: load_profile(default_site().profiles, name) for name in ("t4", "a30", "cpu")}
    monkeypatch.setattr(environment, "card_name", lambda: "NVIDIA A30")
    assert {name: environment.matches(profile) for name, profile in profiles.items()} == {
        "t4": False, "a30": True, "cpu": True,
    }  # fmt: skip
    monkeypatch.setattr(environment, "card_name", lambda: None)
    assert not environment.matches(profiles["a30"])


CARDS = {
    "NVIDIA A30": "a30",
    "NVIDIA A40": "a40",
    "NVIDIA A100-SXM4-80GB": "a100-80gb",
    "NVIDIA A100 80GB PCIe": "a100-80gb",
    "NVIDIA A100-SXM4-40GB": None,
    "Tesla V100-SXM2-32GB": "v100-32gb",
    "Tesla V100S-PCIE-32GB": "v100-32gb",
    "Tesla V100-SXM2-16GB": None,
    "Tesla T4": "t4",
    "NVIDIA T400": None,
    "NVIDIA RTX A4000": None,
    "NVIDIA L4": "l4",
    "NVIDIA L40": None,
    "NVIDIA L40S": "l40s",
    "NVIDIA H100 80GB HBM3": "h100",
    "NVIDIA H200": "h200",
    "NVIDIA GH200 480GB": None,
}
"""Names that drivers give cards -> the profile that is theirs."""


@pytest.mark.parametrize("name", CARDS)
def test_card_is_recognised_by_one_profile_and_its_kin_by_none(name: str) -> None:
    profiles = [load_profile(ROOT / "gpu_profiles", path.stem) for path in (ROOT / "gpu_profiles").iterdir()]
    assert [p.name for p in profiles if describes(p, name)] == [CARDS[name]] * (CARDS[name] is not None)


def test_every_host_has_a_cpu_and_none_a_card_that_does_not_exist(profile: GpuProfile) -> None:
    assert matches(profile.model_copy(update={"device_kind": "cpu"}))
    assert not matches(profile)
