"""deployments/prefect.yaml: every entry point, parameter and pool is one that there is."""

from __future__ import annotations

import importlib
from typing import Any

import pytest
import yaml

from flows.pools import CAMPAIGNS, QUEUES
from servegrid.domain.root import ROOT
from servegrid.plan.options import SweepOptions
from servegrid.store.site import default_site
from tasks.planning import plan

DEPLOYMENTS: list[dict[str, Any]] = yaml.safe_load((ROOT / "deployments" / "prefect.yaml").read_text())[
    "deployments"
]


def test_each_kind_of_campaign_has_a_deployment() -> None:
    sweeps = {entry["name"]: entry for entry in DEPLOYMENTS if entry["entrypoint"] == "flows.sweep.sweep"}
    assert set(sweeps) == {"local", "nightly", "release"}
    assert {sweeps[name]["work_pool"]["name"] for name in ("nightly", "release")} == {CAMPAIGNS}
    (schedule,) = sweeps["nightly"]["schedules"]
    assert schedule["cron"]
    assert "prefect deployment schedule resume sweep/nightly" in sweeps["nightly"]["description"]


def test_deploying_starts_no_schedule() -> None:
    schedules = [schedule for entry in DEPLOYMENTS for schedule in entry.get("schedules", [])]
    assert [schedule["active"] for schedule in schedules] == [False]


@pytest.mark.parametrize("entry", DEPLOYMENTS, ids=lambda entry: entry["name"])
def test_deployment_names_a_flow_and_options_that_can_be_planned(entry: dict[str, Any]) -> None:
    module, name = entry["entrypoint"].rsplit(".", 1)
    assert getattr(importlib.import_module(module), name).name == name
    options = SweepOptions.model_validate(entry["parameters"]["options"])
    assert options.queue in QUEUES
    assert plan(options, default_site())
