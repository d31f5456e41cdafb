"""The description of this host."""

from __future__ import annotations

import os
import sys
from importlib.metadata import version
from pathlib import Path

import pytest

from servegrid.domain.plugins import load_profile
from servegrid.domain.profile import GpuProfile
from servegrid.domain.root import ROOT
from servegrid.host import environment
from servegrid.host.cards import gpu_names
from servegrid.host.environment import describes, extras, host, matches, missing, provider, versions
from servegrid.store.site import default_site


def test_versions_are_those_installed() -> None:
    found = versions(["pydantic", "no-such-distribution"])
    assert found == {"no-such-distribution": "absent", "pydantic": version("pydantic")}
    assert missing(["pydantic", "no-such-distribution"]) == ["no-such-distribution"]


def test_a_package_counts_under_any_distribution_that_brings_it() -> None:
    assert versions(["tensorflow"]) == {"tensorflow": version("tensorflow-cpu")}
    assert missing(["tensorflow", "onnxruntime"]) == []
    assert provider("tensorflow") == "tensorflow-cpu"
    assert provider("no-such-distribution") is None


@pytest.mark.parametrize("first", ["onnxruntime", "onnxruntime-gpu"])
def test_of_two_distributions_of_a_package_the_first_on_the_path_counts(
    first: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (second,) = {"onnxruntime", "onnxruntime-gpu"} - {first}
    for name, number in ((first, "8.0"), (second, "9.0")):
        info = tmp_path / name / f"{name.replace('-', '_')}-{number}.dist-info"
        info.mkdir(parents=True)
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {number}\n")
    folders = [str(tmp_path / first), str(tmp_path / second)]
    monkeypatch.setattr(sys, "path", [*folders, *sys.path])
    assert provider("onnxruntime") == first
    assert versions(["onnxruntime"]) == {"onnxruntime": "8.0"}


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
