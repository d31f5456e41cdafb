"""Every YAML file of the repository that a user may choose by name can be used."""

from __future__ import annotations

from pathlib import Path

import pytest

from servegrid.domain.plugins import load_profile
from servegrid.domain.releases import fitting, load_releases
from servegrid.domain.root import ROOT
from servegrid.domain.server import ServerChoice
from servegrid.plan.matrix import expand
from servegrid.plan.models import known_models, load_model
from servegrid.plan.selection import Selection
from servegrid.servers import embedded

MODELS = known_models(ROOT / "models")
PROFILES = sorted((ROOT / "gpu_profiles").glob("*.yaml"))


def test_there_are_files_to_check() -> None:
    assert MODELS
    assert PROFILES


@pytest.mark.parametrize("model", MODELS)
def test_model_loads_and_offers_both_sizes(model: str) -> None:
    spec = load_model(ROOT / "models", model).spec
    assert {"tiny", "full"} <= set(spec.variants)
    for variant in spec.variants.values():
        serving = variant.serving
        assert max(serving.preferred_batch_sizes, default=0) <= serving.max_batch_size
        assert max(variant.offline.batch_sizes) <= serving.max_batch_size
        assert variant.online.client_batch <= serving.max_batch_size


@pytest.mark.parametrize("model", MODELS)
def test_names_of_fixed_axes_are_parameters_of_every_variant(model: str) -> None:
    spec = load_model(ROOT / "models", model).spec
    named = {a for t in (*spec.inputs, *spec.outputs) for a in t.shape[1:] if isinstance(a, str)}
    for variant in spec.variants.values():
        assert named <= set(variant.parameters)
        interface = spec.interface(variant.parameters)
        for tensor, resolved in zip(spec.inputs, interface.inputs, strict=True):
            for axis, number in zip(tensor.shape[1:], resolved.shape[1:], strict=True):
                assert number == variant.parameters.get(axis, axis)


@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize("entry", ["model.py", "dataloader.py", "metrics.py", "prepare.py"])
def test_model_has_the_files_of_the_contract(model: str, entry: str) -> None:
    assert (ROOT / "models" / model / entry).is_file()


@pytest.mark.parametrize("path", PROFILES, ids=lambda p: p.stem)
def test_profile_loads_under_its_own_name(path: Path) -> None:
    profile = load_profile(ROOT / "gpu_profiles", path.stem)
    assert profile.name == path.stem
    assert profile.pool == f"gpu-{profile.name}"
    if profile.device_kind == "cpu":
        return
    assert profile.device_names
    assert profile.memory_gb
    assert profile.peak and profile.peak.source.startswith("NVIDIA ")
    assert {"fp32", "fp16"} <= set(profile.peak.tflops) <= {*profile.precisions, "tf32"}
    # The tensor cores of capability 8.0 and later know bf16 (NVIDIA, CUDA C++ Programming Guide).
    assert profile.compute_capability
    assert ("bf16" in profile.precisions) == (float(profile.compute_capability) >= 8.0)
    assert fitting(profile.compute_capability, load_releases())


@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize("path", PROFILES, ids=lambda p: p.stem)
def test_every_model_has_cells_on_every_profile(model: str, path: Path) -> None:
    spec = load_model(ROOT / "models", model).spec
    profile = load_profile(ROOT / "gpu_profiles", path.stem)
    for variant in spec.variants:
        plan = expand(
            spec,
            variant,
            profile,
            embedded.capabilities(ServerChoice()),
            Selection(),
            load_releases(),
        )
        names = [c.name for c in plan.cells] + [e.cell.name for e in plan.excluded]
        assert plan.cells
        assert len(set(names)) == len(names)
