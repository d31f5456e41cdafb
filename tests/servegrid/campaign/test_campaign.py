"""A campaign's folder: created once, led by one process at a time, resumed where it stopped."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from servegrid.campaign import campaign as campaigns
from servegrid.campaign import leases
from servegrid.campaign.campaign import create, leading, new_campaign, read, unreached, working
from servegrid.campaign.layout import CampaignLayout
from servegrid.campaign.options_file import objective
from servegrid.campaign.results import Writer
from servegrid.domain.errors import UserError
from servegrid.domain.slo import parse
from servegrid.plan.model_plan import KeptPlan
from servegrid.plan.options import SweepOptions
from servegrid.store.site import default_site
from tasks.planning import plan

OPTIONS = SweepOptions(models=("bert_large_qa",), formats=("onnx",), accelerators=("none",))
CELLS = [(f"bert_large_qa-tiny-onnx-{precision}", "cpu") for precision in ("fp32", "fp16", "int8", "bf16")]
"""The cells that run, and the excluded one, bf16."""

WORKER = """
import sys, time
from pathlib import Path
from servegrid.campaign.campaign import working
with working(Path(sys.argv[1]), int(sys.argv[2]), "a-run"):
    print("works", flush=True)
    time.sleep(60)
"""


@pytest.fixture(scope="module")
def plans() -> tuple[KeptPlan, ...]:
    return tuple(entry.kept for entry in plan(OPTIONS, default_site()))


def work(folder: Path, attempt: int) -> subprocess.Popen[str]:
    command = [sys.executable, "-c", WORKER, str(folder), str(attempt)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    assert process.stdout.readline() == "works\n"
    return process


def test_campaign_keeps_its_options_and_its_plan_and_counts_its_attempts(
    tmp_path: Path, plans: tuple[KeptPlan, ...]
) -> None:
    folder = tmp_path / "c"
    create(folder, OPTIONS, plans)
    found = read(folder)
    assert found.options == OPTIONS
    assert found.options.model_fields_set == OPTIONS.model_fields_set, "a default stays a default"
    assert found.plans == plans
    assert {entry.cell.name: entry.reason for entry in found.plans[0].plan.excluded}
    assert objective(folder) is None
    for attempt in (1, 2):
        with leading(folder) as number:
            assert number == attempt == read(folder).attempt
    assert read(folder).plans == plans


def test_objective_of_a_campaign_is_an_option(tmp_path: Path) -> None:
    assert objective(tmp_path) is None, "the folder has no campaign's file"
    create(tmp_path, OPTIONS.model_copy(update={"slo": parse("p99=0.05s")}), ())
    assert objective(tmp_path) == parse("p99=50ms") == read(tmp_path).options.slo


def test_campaign_is_created_once_and_led_by_one_process(tmp_path: Path, plans: tuple[KeptPlan, ...]) -> None:
    folder = tmp_path / "c"
    create(folder, OPTIONS, plans)
    with leading(folder), pytest.MonkeyPatch.context() as patch:
        patch.setattr(campaigns, "LEADER_S", 0.1)
        with pytest.raises(UserError, match=r"campaign c .*attempt 1"):
            leading(folder).__enter__()
        with pytest.raises(UserError, match=r"campaign c .*attempt 1"):
            create(folder, OPTIONS, plans)
    with pytest.raises(UserError, match=r"campaign c .*--resume c"):
        create(folder, OPTIONS, plans)
    assert read(folder).attempt == 1
    with pytest.raises(UserError, match=r"campaign.*'cc'.*'c'"):
        read(tmp_path / "cc")
    (folder / "campaign.json").write_text('{"options": {"colour": "red"}, "attempt": 1, "cells": []}')
    with pytest.raises(UserError, match=r"c/campaign.json: .*options.colour"):
        read(folder)


def test_cells_without_a_row_and_skipped_ones_are_unfinished(
    tmp_path: Path, plans: tuple[KeptPlan, ...]
) -> None:
    assert unreached(tmp_path / "none") == []
    create(tmp_path, OPTIONS, plans)
    assert set(unreached(tmp_path)) == set(CELLS)
    for (cell, profile), verdict in zip(CELLS, ("passed", "error", "skipped"), strict=False):
        Writer(tmp_path).append("cell", {"cell": cell, "profile": profile, "verdict": verdict})
    assert set(unreached(tmp_path)) == set(CELLS[2:])


def test_run_ends_as_by_sigterm_when_its_leader_is_gone(tmp_path: Path, plans: tuple[KeptPlan, ...]) -> None:
    create(tmp_path, OPTIONS, plans)
    with leading(tmp_path) as attempt:
        process = work(tmp_path, attempt)
        time.sleep(2 * campaigns.WATCH_S)
        assert process.poll() is None
        assert leases.look(CampaignLayout(folder=tmp_path).run("a-run")).held
    assert process.wait(timeout=10) == -signal.SIGTERM


def test_run_of_an_earlier_attempt_ends_though_the_campaign_is_led_again(
    tmp_path: Path, plans: tuple[KeptPlan, ...]
) -> None:
    create(tmp_path, OPTIONS, plans)
    with leading(tmp_path):
        pass
    with leading(tmp_path):
        process = work(tmp_path, 1)
        assert process.wait(timeout=10) == -signal.SIGTERM


def test_lease_of_a_run_shows_whether_it_did_its_work(tmp_path: Path, plans: tuple[KeptPlan, ...]) -> None:
    create(tmp_path, OPTIONS, plans)
    layout = CampaignLayout(folder=tmp_path)
    with leading(tmp_path) as attempt:
        with working(tmp_path, attempt, "done"):
            assert leases.look(layout.run("done")).held
        with pytest.raises(ValueError, match="a bug"), working(tmp_path, attempt, "failed"):
            raise ValueError("a bug")
    assert leases.look(layout.run("done")) == leases.Look(held=False, text=campaigns.ENDED)
    assert leases.look(layout.run("failed")).text != campaigns.ENDED


def test_run_of_the_leaders_own_process_goes_on(tmp_path: Path) -> None:
    with working(tmp_path, None, "own"):
        time.sleep(1.5 * campaigns.WATCH_S)


def test_campaigns_have_names_of_their_own() -> None:
    assert len({new_campaign() for _ in range(50)}) == 50
