"""A campaign's folder: begun once, led by one, gone on with where it stopped."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from flows.planning import plan
from servegrid.campaign import campaign as campaigns
from servegrid.campaign import leases
from servegrid.campaign.campaign import leading, new_campaign, read, run_lease, unreached, working
from servegrid.campaign.options_file import objective
from servegrid.campaign.results import Writer
from servegrid.domain.errors import UserError
from servegrid.plan.model_plan import ModelPlan
from servegrid.plan.options import SweepOptions
from servegrid.store.site import default_site

OPTIONS = SweepOptions(models=("bert_large_qa",), formats=("onnx",), accelerators=("none",))
CELLS = [(f"bert_large_qa-tiny-onnx-{precision}", "cpu") for precision in ("fp32", "fp16", "int8", "bf16")]
"""Those of the matrix that no rule keeps, and bf16, which one does."""

WORKER = """
import sys, time
from pathlib import Path
from servegrid.campaign.campaign import working
from servegrid.plan.options import SweepOptions
with working(Path(sys.argv[1]), SweepOptions(), int(sys.argv[2]), "a-run"):
    print("works", flush=True)
    time.sleep(60)
"""


@pytest.fixture(scope="module")
def plans() -> tuple[ModelPlan, ...]:
    return plan(OPTIONS, default_site())


def work(folder: Path, attempt: int) -> subprocess.Popen[str]:
    command = [sys.executable, "-c", WORKER, str(folder), str(attempt)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    assert process.stdout.readline() == "works\n"
    return process


def test_campaign_is_resumed_with_its_options_and_the_next_attempt(
    tmp_path: Path, plans: tuple[ModelPlan, ...]
) -> None:
    with leading(tmp_path / "c", OPTIONS, plans, resume=False) as attempt:
        assert attempt == 1
    found = read(tmp_path / "c")
    assert found.options == OPTIONS
    assert objective(tmp_path / "c") is None
    assert found.options.model_fields_set == OPTIONS.model_fields_set, "what was not asked for stays unasked"
    with leading(tmp_path / "c", found.options, plans, resume=True) as attempt:
        assert attempt == 2
        assert read(tmp_path / "c").attempt == 2


def test_the_objective_of_a_campaign_is_the_one_that_was_asked_for(tmp_path: Path) -> None:
    assert objective(tmp_path) is None, "no campaign was begun by this program"
    asked = OPTIONS.model_copy(update={"slo": "p99=50ms"})
    with leading(tmp_path, asked, (), resume=False):
        assert str(objective(tmp_path)) == "p99=50ms"


def test_campaign_is_begun_once_and_led_by_one(tmp_path: Path, plans: tuple[ModelPlan, ...]) -> None:
    folder = tmp_path / "c"
    with leading(folder, OPTIONS, plans, resume=False):
        with pytest.raises(UserError, match="running already, attempt 1"):
            leading(folder, OPTIONS, plans, resume=False).__enter__()
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(campaigns, "LEADER_S", 0.1)
            with pytest.raises(UserError, match="running already, attempt 1"):
                leading(folder, OPTIONS, plans, resume=True).__enter__()
    with pytest.raises(UserError, match=r"begun already.*--resume c"):
        leading(folder, OPTIONS, plans, resume=False).__enter__()
    assert read(folder).attempt == 1
    with pytest.raises(UserError, match=r"unknown campaign .*did you mean 'c'"):
        read(tmp_path / "cc")
    (folder / "campaign.json").write_text('{"options": {"colour": "red"}, "attempt": 1, "cells": []}')
    with pytest.raises(UserError, match=r"c/campaign.json: cannot be read .*options.colour: no such key"):
        read(folder)


def test_cells_without_a_row_and_skipped_ones_are_unfinished(
    tmp_path: Path, plans: tuple[ModelPlan, ...]
) -> None:
    assert unreached(tmp_path / "none") == []
    with leading(tmp_path, OPTIONS, plans, resume=False):
        assert set(unreached(tmp_path)) == set(CELLS)
    for (cell, profile), verdict in zip(CELLS, ("passed", "error", "skipped"), strict=False):
        Writer(tmp_path).append("cell", {"cell": cell, "profile": profile, "verdict": verdict})
    assert set(unreached(tmp_path)) == set(CELLS[2:])


def test_run_ends_as_by_sigterm_when_its_leader_is_gone(tmp_path: Path, plans: tuple[ModelPlan, ...]) -> None:
    with leading(tmp_path, OPTIONS, plans, resume=False) as attempt:
        process = work(tmp_path, attempt)
        time.sleep(2 * campaigns.WATCH_S)
        assert process.poll() is None
        assert leases.holder(run_lease(tmp_path, SweepOptions())) == "a-run"
    assert process.wait(timeout=10) == -signal.SIGTERM


def test_run_of_an_earlier_attempt_ends_though_the_campaign_is_led_again(
    tmp_path: Path, plans: tuple[ModelPlan, ...]
) -> None:
    with leading(tmp_path, OPTIONS, plans, resume=False):
        pass
    with leading(tmp_path, OPTIONS, plans, resume=True):
        process = work(tmp_path, 1)
        assert process.wait(timeout=10) == -signal.SIGTERM


def test_run_of_the_leaders_own_process_goes_on(tmp_path: Path) -> None:
    with working(tmp_path, SweepOptions(), None, "own"):
        time.sleep(1.5 * campaigns.WATCH_S)
        assert leases.holder(run_lease(tmp_path, SweepOptions())) == "own"


def test_campaigns_have_names_of_their_own() -> None:
    assert len({new_campaign() for _ in range(50)}) == 50
