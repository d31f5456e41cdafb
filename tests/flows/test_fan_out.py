"""A run on a worker as its campaign sees it: alive, dead, or not taken yet."""

from __future__ import annotations

from pathlib import Path

import pytest
from prefect.client.schemas.objects import State
from prefect.states import Completed, Crashed, Pending, Running, Scheduled

from flows import fan_out
from servegrid.campaign import leases
from servegrid.campaign.campaign import run_lease
from servegrid.plan.options import SweepOptions

PART = SweepOptions(models=("m",), profiles=("card",))


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    now = [1000.0]
    monkeypatch.setattr(fan_out.time, "monotonic", lambda: now[0])
    return now


@pytest.mark.parametrize(("state", "limit"), [(Running(), 6.0), (Pending(), 90.0)])
def test_run_that_nobody_works_at_is_dead_after_a_while(
    tmp_path: Path, clock: list[float], state: State, limit: float
) -> None:
    run = fan_out._Watched(PART, tmp_path, "cards")
    assert not run.is_dead(Scheduled())
    clock[0] += 1000
    assert not run.is_dead(state), "it has just come into this state"
    clock[0] += limit
    assert not run.is_dead(state)
    clock[0] += 1
    assert run.is_dead(state)
    assert not run.ended
    assert not run.is_dead(Crashed())
    assert run.ended


def test_run_whose_process_holds_the_lease_is_not_ended(tmp_path: Path, clock: list[float]) -> None:
    run = fan_out._Watched(PART, tmp_path, "cards")
    with leases.holding(run_lease(tmp_path, PART), "a-run", wait_s=0):
        for _ in range(3):
            assert not run.is_dead(Running())
            clock[0] += 1000
        assert not run.is_dead(Running())
    clock[0] += 4
    assert not run.is_dead(Running())
    clock[0] += 4
    assert run.is_dead(Running())


def test_how_to_start_a_worker_is_logged_once(
    tmp_path: Path, clock: list[float], caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", "servegrid")
    run = fan_out._Watched(PART, tmp_path, "cards")
    for _ in range(4):
        assert not run.is_dead(Scheduled())
        clock[0] += 50
    assert not run.is_dead(Completed())
    assert not run.is_dead(Completed())
    assert caplog.messages == [
        "m on card: no worker has taken it yet; `prefect worker start --pool cards --limit 1` starts one",
        "m on card: Completed",
    ]
