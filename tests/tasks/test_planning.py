"""From options to cells, the kept plan of a campaign, and what this host lacks for it."""

from __future__ import annotations

import json
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml
from pydantic import ValidationError

from servegrid.campaign.campaign import read
from servegrid.domain.errors import UserError
from servegrid.domain.root import ROOT
from servegrid.domain.server import ServerCapabilities, ServerChoice
from servegrid.domain.slo import parse
from servegrid.formats import FORMATS
from servegrid.loadgen import choosing
from servegrid.loadgen.choosing import choose_generator, generator_notes
from servegrid.loadgen.generators import GENERATORS
from servegrid.plan.matrix import Plan
from servegrid.plan.options import SweepOptions
from servegrid.servers import SERVERS, embedded
from servegrid.store.site import Site
from tasks.planning import begin, kept_plans, on_this_host, plan, preflight, resume
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


def test_notes_name_why_the_client_measures_instead_of_perf_analyzer(site: Site) -> None:
    (model,) = plan(SweepOptions(models=("bert",), formats=("onnx",)), site)
    wanted = SweepOptions(generator="perf_analyzer")
    assert generator_notes(wanted, (model.kept,), site) == ()
    with_rates = wanted.model_copy(update={"slo": parse("p99=1s")})
    (line,) = generator_notes(with_rates, (model.kept,), site)
    assert "request rates" in line
    assert generator_notes(SweepOptions(generator="client", request_rates=(5.0,)), (model.kept,), site) == ()
    (cell, *_) = model.plan.cells
    static = cell.static.model_copy(update={"max_batch_size": 0, "batching": "disabled"})
    unbatched = Plan(cells=(cell.model_copy(update={"static": static}),), excluded=())
    (line,) = generator_notes(wanted, (model.kept.model_copy(update={"plan": unbatched}),), site)
    assert line.startswith("bert: the client measures it")


def test_plan_has_every_model_on_every_profile_once(site: Site) -> None:
    options = SweepOptions(models=("another", "bert"), formats=("trt",), profiles=("cpu", "card", "cpu"))
    found = plan(options, site)
    pairs = [("another", "cpu"), ("bert", "cpu"), ("another", "card"), ("bert", "card")]
    assert [(entry.plugin.folder.name, entry.profile.name) for entry in found] == pairs
    assert {profile for entry in found for _, profile in entry.kept.keys} == {"cpu", "card"}
    assert all(entry.kept.keys for entry in found), "an excluded cell ends as a row, too"


def test_missing_library_excludes_the_cells_that_need_it(site: Site) -> None:
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


def test_random_weights_need_no_files(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(SERVERS["embedded"], "problems", lambda site, choice: [])
    options = SweepOptions(models=("bert",), variant="full")
    with pytest.raises(UserError, match=r"(?s)bert_large_qa\.pt.*--random-weights"):
        preflight(options, plan(options, site)[0], site)
    options = options.model_copy(update={"random_weights": True})
    preflight(options, plan(options, site)[0], site)


def test_cells_have_the_selected_variant_profile_and_generator(site: Site) -> None:
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
        (SweepOptions(models=("bret",)), r"unknown model .* 'bret': did you mean 'bert'\?"),
        (SweepOptions(models=("bert",), variant="ful"), r"'ful': did you mean 'full'\?"),
        (SweepOptions(models=("bert",), profiles=("cards",)), r"unknown GPU profile .*did you mean 'card'\?"),
        (SweepOptions(models=("bert",), server="embeded"), r"'embeded': did you mean 'embedded'"),
    ],
)
def test_error_of_an_unknown_name_has_the_nearest(site: Site, options: SweepOptions, named: str) -> None:
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


def test_missing_perf_analyzer_is_an_error_if_chosen(site: Site) -> None:
    with pytest.raises(UserError, match="perf_analyzer"):
        choose_generator(SweepOptions(generator="perf_analyzer"), site)


@pytest.fixture
def perf_analyzer(monkeypatch: pytest.MonkeyPatch) -> None:
    """One that could be used here."""
    monkeypatch.setattr(GENERATORS["perf_analyzer"], "problem", lambda site: None)


@pytest.mark.parametrize(("workers", "cards", "chosen"), [
    (False, 2, "perf_analyzer"), (True, 1, "perf_analyzer"), (True, 0, "perf_analyzer"), (True, 2, "client"),
])  # fmt: skip
def test_workers_of_several_cards_of_a_host_measure_by_the_client_with_a_fake_driver(
    site: Site, perf_analyzer: None, monkeypatch: pytest.MonkeyPatch, workers: bool, cards: int, chosen: str
) -> None:
    monkeypatch.setattr(choosing, "gpu_names", lambda: ("NVIDIA H200",) * cards)
    assert choose_generator(SweepOptions(workers=workers), site) == chosen
    assert choose_generator(SweepOptions(workers=workers, generator="perf_analyzer"), site) == "perf_analyzer"


def test_a_profile_names_its_generator_and_the_option_goes_before(site: Site, perf_analyzer: None) -> None:
    assert choose_generator(SweepOptions(), site, of_profile="client") == "client"
    wanted = SweepOptions(generator="perf_analyzer")
    assert choose_generator(wanted, site, of_profile="client") == "perf_analyzer"
    profile = site.profiles / "cpu.yaml"
    profile.write_text(profile.read_text() + "generator: client\n")
    found = plan(SweepOptions(models=("bert",)), site)
    assert {cell.online.generator for entry in found for cell in entry.plan.cells} == {"client"}


@pytest.mark.parametrize(("workers", "profiles", "kept"), [
    (True, ("cpu", "card"), "client"), (True, ("card",), "auto"), (False, ("cpu",), "auto"),
])  # fmt: skip
def test_workers_of_the_cpu_and_of_cards_measure_by_the_client(
    site: Site, counted: list[ServerChoice], workers: bool, profiles: tuple[str, ...], kept: str
) -> None:
    options = SweepOptions(models=("bert",), profiles=profiles, workers=workers)
    begin(site.results / "c", options, site)
    assert read(site.results / "c").options.generator == kept
    profile = site.profiles / "card.yaml"
    profile.write_text(profile.read_text() + "generator: perf_analyzer\n")
    begin(site.results / "d", options, site)
    assert read(site.results / "d").options.generator == "auto", "a profile's generator goes before"


def test_client_can_be_chosen(site: Site) -> None:
    assert choose_generator(SweepOptions(generator="client"), site) == "client"


# What is missing ---------------------------------------------------------------------------------------


def test_preflight_lists_everything_that_is_missing(site: Site) -> None:
    options = SweepOptions(models=("bert",), profiles=("card",))
    with pytest.raises(UserError) as caught:
        preflight(options, plan(options, site)[0], site)
    first, *problems = str(caught.value).splitlines()
    assert first == "this host is not ready:"
    assert any("tritonserver" in p for p in problems)
    assert any(p.startswith("  profile 'card': this host has no Card 9000, but ") for p in problems)
    assert not site.home.exists()


def test_preflight_names_a_release_that_does_not_run_on_the_card(site: Site) -> None:
    path = site.profiles / "card.yaml"
    path.write_text(
        path.read_text().replace("device_kind: gpu", "device_kind: cpu\ncompute_capability: '5.2'")
    )
    options = SweepOptions(models=("bert",), profiles=("card",))
    with pytest.raises(UserError, match=r"Triton 24\.10 on compute capability 5\.2: .*triton_releases"):
        preflight(options, plan(options, site)[0], site)


def test_preflight_accepts_a_host_with_the_device(site: Site) -> None:
    options = SweepOptions(models=("bert",))
    with pytest.raises(UserError) as caught:
        preflight(options, plan(options, site)[0], site)
    assert "this host has no" not in str(caught.value)


def test_missing_files_are_named_with_their_sources(site: Site) -> None:
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


def test_environment_of_a_format_is_checked(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    """No server with a tensorflow backend runs here: one is only said to."""
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


# The kept plan -----------------------------------------------------------------------------------------


@pytest.fixture
def counted(monkeypatch: pytest.MonkeyPatch) -> list[ServerChoice]:
    """The choices whose capabilities are looked up, in order; this host is ready."""
    seen: list[ServerChoice] = []
    real = embedded.capabilities

    def capabilities(choice: ServerChoice) -> ServerCapabilities:
        seen.append(choice)
        return real(choice)

    monkeypatch.setattr(embedded, "capabilities", capabilities)
    monkeypatch.setattr(embedded, "problems", lambda site, choice: [])
    return seen


def test_campaign_is_planned_once_and_its_runs_read_the_kept_plan(
    site: Site, counted: list[ServerChoice]
) -> None:
    options = SweepOptions(models=("bert", "another"), formats=("onnx",), max_batch_size=2)
    folder = site.results / "c"
    begin(folder, options, site)
    assert len(counted) == 1, "once for each profile"
    resume(folder, site)
    (bert,) = kept_plans(folder, options.only("bert", "cpu"), site)
    assert len(counted) == 1
    assert on_this_host(bert, options, site) == plan(options, site)[0]
    assert [entry.plugin.spec.name for entry in kept_plans(folder, options, site)] == ["bert", "another"]


def test_resumed_campaign_keeps_its_cells_though_the_models_spec_has_changed(
    site: Site, counted: list[ServerChoice]
) -> None:
    options = SweepOptions(models=("bert",), formats=("onnx",))
    begin(site.results / "c", options, site)
    (before,) = kept_plans(site.results / "c", options, site)
    path = site.models / "bert" / "model.yaml"
    spec = yaml.safe_load(path.read_text())
    spec["variants"]["tiny"]["online"]["concurrency"] = [1]
    path.write_text(yaml.safe_dump(spec))
    resume(site.results / "c", site)
    (after,) = kept_plans(site.results / "c", options, site)
    assert after.plan == before.plan
    assert after.plugin != before.plugin
    del spec["variants"]["tiny"]
    path.write_text(yaml.safe_dump(spec))
    with pytest.raises(UserError, match="variant of bert 'tiny'"):
        resume(site.results / "c", site)


def test_campaign_without_a_kept_plan_is_planned_again_under_the_names_of_its_rows(
    site: Site, counted: list[ServerChoice]
) -> None:
    folder, name = site.results / "old", "bert-tiny-onnx-fp32"
    folder.mkdir(parents=True)
    options = {"models": ["bert"], "formats": ["onnx"], "precisions": ["fp32"], "accelerators": ["none"]}
    options |= {"max_batch_size": 2}
    old = {"options": options, "attempt": 3, "cells": [[name, "cpu"]]}
    (folder / "campaign.json").write_text(json.dumps(old))
    resume(folder, site)
    found = read(folder)
    assert (found.attempt, found.keys) == (3, ((name, "cpu"),))
    (entry,) = kept_plans(folder, found.options, site)
    assert entry.plan.cells[0].static.max_batch_size == 2


def test_options_that_cannot_be_planned_leave_no_campaign(site: Site, counted: list[ServerChoice]) -> None:
    with pytest.raises(UserError):
        begin(site.results / "c", SweepOptions(models=("bret",)), site)
    assert not site.results.exists()
