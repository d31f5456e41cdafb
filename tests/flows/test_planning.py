"""From options to cells; everything that is missing is named before any work."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml
from pydantic import ValidationError

from flows.planning import choose_generator, generator_notes, plan, preflight
from servegrid.domain.errors import UserError
from servegrid.domain.root import ROOT
from servegrid.formats import FORMATS
from servegrid.loadgen import GENERATORS
from servegrid.plan.options import SweepOptions
from servegrid.servers import SERVERS, embedded
from servegrid.store.site import Site
from tasks.prepare import check_sources


@pytest.fixture
def site(tmp_path: Path) -> Site:
    """A host with two models, two profiles, and nothing installed."""
    spec = yaml.safe_load((ROOT / "models" / "bert_large_qa" / "model.yaml").read_text())
    absent = {"requires": ["torch", "no-such-distribution"]}
    for name, changes in {"bert": {}, "another": {}, "other": absent}.items():
        (tmp_path / "models" / name).mkdir(parents=True)
        text = yaml.safe_dump(spec | {"name": name} | changes)
        (tmp_path / "models" / name / "model.yaml").write_text(text)
    (tmp_path / "profiles").mkdir()
    cpu = yaml.safe_load((ROOT / "gpu_profiles" / "cpu.yaml").read_text())
    card = {"name": "card", "description": "Card 9000", "device_kind": "gpu", "device_names": ["Card 9000"]}
    card |= {"unsupported": []}
    for profile in (cpu, cpu | card):
        (tmp_path / "profiles" / f"{profile['name']}.yaml").write_text(yaml.safe_dump(profile))
    return Site(
        home=tmp_path / "home",
        models=tmp_path / "models",
        profiles=tmp_path / "profiles",
        sources=tmp_path / "sources",
        results=tmp_path / "results",
    )


def test_plan_has_the_cells_of_every_model_in_order(site: Site) -> None:
    found = plan(SweepOptions(models=("another", "bert"), formats=("onnx",)), site)
    names = [cell.name for entry in found for cell in entry.plan.cells]
    precisions = ("fp32", "fp16", "int8")
    assert names == [f"{model}-tiny-onnx-{p}" for model in ("another", "bert") for p in precisions]
    assert [entry.plugin.folder for entry in found] == [site.models / "another", site.models / "bert"]
    assert {entry.profile.name for entry in found} == {"cpu"}


def test_a_generator_other_than_the_chosen_one_is_noted(site: Site) -> None:
    plans = plan(SweepOptions(models=("bert",), formats=("onnx",)), site)
    options = SweepOptions(generator="perf_analyzer")
    assert generator_notes(options, plans, site) == ()
    with_rate = SweepOptions(generator="perf_analyzer", slo="p99=1s")
    (line,) = generator_notes(with_rate, plans, site)
    assert line.startswith("the client sends at request rates")
    assert generator_notes(SweepOptions(generator="client", request_rates=(5.0,)), plans, site) == ()
    (model,) = plans
    inputs = tuple(t.model_copy(update={"shape": (4, *t.shape[1:])}) for t in model.plugin.spec.inputs)
    spec = model.plugin.spec.model_copy(update={"inputs": inputs})
    fixed = model.model_copy(update={"plugin": model.plugin.model_copy(update={"spec": spec})})
    (line,) = generator_notes(options, (fixed,), site)
    assert line.startswith("bert: the client measures it")


def test_plan_has_every_model_on_every_profile_once(site: Site) -> None:
    options = SweepOptions(models=("another", "bert"), formats=("trt",), profiles=("cpu", "card", "cpu"))
    found = plan(options, site)
    pairs = [("another", "cpu"), ("bert", "cpu"), ("another", "card"), ("bert", "card")]
    assert [(entry.plugin.folder.name, entry.profile.name) for entry in found] == pairs
    assert {profile for entry in found for _, profile in entry.keys} == {"cpu", "card"}
    assert all(entry.keys for entry in found), "cells that do not run count, too: they become rows"


def test_missing_library_ends_the_cells_of_the_models_that_want_it(site: Site) -> None:
    wanted = {"formats": ("ts-trace", "onnx"), "precisions": ("fp32", "fp16"), "accelerators": ("none",)}
    other, bert = plan(SweepOptions.model_validate({"models": ("other", "bert"), **wanted}), site)
    assert (len(other.plan.cells), len(bert.plan.cells)) == (0, 4)
    reasons = {entry.reason for entry in other.plan.excluded}
    assert reasons == {
        "not installed: no-such-distribution; in the checkout run `pip install no-such-distribution`"
    }


def test_engine_is_planned_for_a_card_and_not_for_the_cpu(site: Site) -> None:
    options = SweepOptions(models=("bert",), formats=("trt",), precisions=("fp32", "fp16"))
    (on_cpu,) = plan(options, site)
    assert {entry.cell.product.precision for entry in on_cpu.plan.excluded} == {"fp32", "fp16"}
    assert {entry.reason for entry in on_cpu.plan.excluded} == {
        "gpu_profiles/cpu.yaml: a TensorRT engine runs on an NVIDIA GPU only"
    }
    (on_card,) = plan(options.model_copy(update={"profiles": ("card",)}), site)
    assert [cell.product.precision for cell in on_card.plan.cells] == ["fp32", "fp16"]


def test_format_needs_the_libraries_of_its_source(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(FORMATS, "onnx", replace(FORMATS["onnx"], libraries=("no-such-distribution",)))
    options = SweepOptions(models=("bert",), formats=("trt",), precisions=("fp32",), profiles=("card",))
    (found,) = plan(options, site)
    assert not found.plan.cells
    assert all("no-such-distribution" in entry.reason for entry in found.plan.excluded)


def test_format_needs_the_programs_that_make_it(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    options = SweepOptions(models=("bert",), formats=("aoti",), precisions=("fp32",))
    monkeypatch.setitem(FORMATS, "aoti", replace(FORMATS["aoti"], tools=("no-such-compiler",)))
    (entry,) = plan(options, site)[0].plan.excluded
    assert entry.reason.startswith("not installed: no-such-compiler; install it with the system's")


def test_random_weights_and_limits_are_in_the_cells(site: Site) -> None:
    options = SweepOptions(
        models=("bert",),
        variant="full",
        random_weights=True,
        max_batch_size=8,
        max_concurrency=2,
        request_count=5,
    )
    cell = plan(options, site)[0].plan.cells[0]
    assert cell.product.random_weights
    assert (cell.static.max_batch_size, cell.dynamic.preferred_batch_sizes) == (8, (8,))
    assert (cell.offline.batch_sizes, cell.online.concurrency) == ((1, 8), (1, 2))
    assert (cell.offline.request_count, cell.online.request_count) == (5, 5)


def test_random_weights_want_no_files(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(SERVERS["embedded"], "problems", lambda site, choice: [])
    options = SweepOptions(models=("bert",), variant="full")
    with pytest.raises(UserError, match=r"(?s)bert_large_qa\.pt.*--random-weights"):
        preflight(options, plan(options, site)[0], site)
    options = options.model_copy(update={"random_weights": True})
    preflight(options, plan(options, site)[0], site)


def test_plan_passes_the_options_on(site: Site) -> None:
    options = SweepOptions(
        models=("bert",), variant="full", profiles=("card",), precisions=("fp16",), generator="client"
    )
    cells = plan(options, site)[0].plan.cells
    assert {(c.product.variant, c.profile, c.product.precision) for c in cells} == {("full", "card", "fp16")}
    assert {c.product.triton_release for c in cells} == {SERVERS["embedded"].TRITON_RELEASE}
    assert {c.online.generator for c in cells} == {"client"}


@pytest.mark.parametrize(
    ("options", "named"),
    [
        (SweepOptions(models=("bret",)), "model.*'bret'.*'bert'"),
        (SweepOptions(models=("bert",), variant="ful"), "variant.*'ful'.*'full'"),
        (SweepOptions(models=("bert",), profiles=("cards",)), "profile.*'cards'.*'card'"),
        (SweepOptions(models=("bert",), formats=("onx",)), "format.*'onx'.*'onnx'"),
        (SweepOptions(models=("bert",), precisions=("fp61",)), "precision.*'fp61'.*'fp16'"),
        (SweepOptions(models=("bert",), server="embeded"), "server.*'embeded'.*'embedded'"),
    ],
)
def test_unknown_name_is_refused_with_the_nearest(site: Site, options: SweepOptions, named: str) -> None:
    with pytest.raises(UserError, match=named):
        plan(options, site)


def test_options_are_closed_and_frozen() -> None:
    with pytest.raises(ValidationError, match="modells"):
        SweepOptions.model_validate({"modells": ["bert"]})
    with pytest.raises(ValidationError, match="generator"):
        SweepOptions.model_validate({"generator": "ab"})
    with pytest.raises(ValidationError, match="frozen"):
        SweepOptions().variant = "full"


# Load generators ---------------------------------------------------------------------------------------


def test_without_perf_analyzer_the_projects_own_client_is_chosen(site: Site) -> None:
    assert GENERATORS["perf_analyzer"].problem(site) is not None
    assert choose_generator(SweepOptions(), site) == "client"


def test_perf_analyzer_that_is_chosen_but_missing_is_refused(site: Site) -> None:
    with pytest.raises(UserError, match="perf_analyzer"):
        choose_generator(SweepOptions(generator="perf_analyzer"), site)


def test_the_client_can_be_chosen(site: Site) -> None:
    assert choose_generator(SweepOptions(generator="client"), site) == "client"


# What is missing ---------------------------------------------------------------------------------------


def test_everything_that_is_missing_is_named_at_once(site: Site) -> None:
    options = SweepOptions(models=("bert",), profiles=("card",))
    with pytest.raises(UserError) as caught:
        preflight(options, plan(options, site)[0], site)
    first, *problems = str(caught.value).splitlines()
    assert first == "this host is not ready:"
    assert any("tritonserver" in p for p in problems)
    assert any(p.startswith("  profile 'card': this host has no Card 9000, but ") for p in problems)
    assert not site.home.exists()


def test_release_that_does_not_run_on_the_profiles_card_is_refused(site: Site) -> None:
    path = site.profiles / "card.yaml"
    path.write_text(
        path.read_text().replace("device_kind: gpu", "device_kind: cpu\ncompute_capability: '5.2'")
    )
    options = SweepOptions(models=("bert",), profiles=("card",))
    with pytest.raises(UserError, match=r"24\.10.*compute capability 5\.2"):
        preflight(options, plan(options, site)[0], site)


def test_host_that_has_the_profiles_device_is_not_blamed_for_it(site: Site) -> None:
    options = SweepOptions(models=("bert",))
    with pytest.raises(UserError) as caught:
        preflight(options, plan(options, site)[0], site)
    assert "this host has no" not in str(caught.value)


def test_every_file_that_a_variant_wants_is_named_with_where_to_get_it(site: Site) -> None:
    plugin = plan(SweepOptions(models=("bert",)), site)[0].plugin
    (site.sources / "bert").mkdir(parents=True)
    (site.sources / "bert" / "vocab.txt").touch()
    with pytest.raises(UserError) as caught:
        check_sources(plugin, "full", site)
    message = str(caught.value)
    for source in plugin.spec.variants["full"].sources:
        there = source.file == "vocab.txt"
        assert (str(site.sources / "bert" / source.file) in message) is not there
        assert there or source.published in message
    check_sources(plugin, "tiny", site)


def test_named_environment_is_checked_only_if_a_server_can_serve_its_format(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No server with a tensorflow backend runs here: the test only pretends that one does."""
    monkeypatch.setattr(embedded, "BACKENDS", ("tensorflow", "python"))
    site = site.model_copy(update={"models": ROOT / "models"})
    options = SweepOptions(
        models=("resnet50",),
        formats=("tf-trt",),
        precisions=("fp16",),
        profiles=("card",),
        generator="client",
    )
    path = site.profiles / "card.yaml"
    card = yaml.safe_load(path.read_text())

    def planned(environments: dict[str, Any]) -> list[str]:
        path.write_text(yaml.safe_dump(card | {"environments": environments}))
        (found,) = plan(options, site)
        return [e.reason for e in found.plan.excluded] or [c.static.backend for c in found.plan.cells]

    (reason,) = planned({})
    assert reason.startswith(
        "tf-trt is made by TensorFlow up to 2.17 built with TensorRT: name an environment"
    )
    (reason,) = planned({"tf-trt": "/nowhere"})
    assert reason == (
        "gpu_profiles/card.yaml, environments.tf-trt: /nowhere/bin/python: no such file; name the folder of "
        "a Python environment"
    )
    monkeypatch.setenv("DOCKER_HOST", "unix:///nowhere/docker.sock")
    (reason,) = planned({"tf-trt": {"image": "tf:1"}})
    assert reason.startswith("gpu_profiles/card.yaml, environments.tf-trt: ")
    assert reason.endswith(" (`docker pull tf:1` brings an image here)")
    assert planned({"tf-trt": sys.prefix}) == ["native"]
