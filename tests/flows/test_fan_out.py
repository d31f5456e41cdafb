"""A pool's runs as their campaign sees them: one spare, each alive or dead. Prefect's client is a stub here;
tests/e2e/workers has the real one."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from uuid import UUID, uuid4

import pytest
from prefect.client.schemas.objects import State, StateType
from prefect.states import Cancelled, Completed, Crashed, Failed, Pending, Running, Scheduled

from flows import fan_out, pool_share
from flows.cancelling import CancelledError
from flows.pool_share import FRUITLESS, PoolShare, WatchedRun
from servegrid.campaign import leases
from servegrid.campaign.campaign import ENDED
from servegrid.campaign.claims import Claims
from servegrid.campaign.layout import CampaignLayout
from servegrid.plan.options import SweepOptions

KEYS = [(f"cell-{number}", "card") for number in range(3)]


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    now = [1000.0]
    monkeypatch.setattr(pool_share.time, "monotonic", lambda: now[0])
    return now


@pytest.mark.parametrize(("state", "limit"), [(Running(), 6.0), (Pending(), 90.0)])
def test_run_that_nobody_works_at_is_dead_after_a_while(
    tmp_path: Path, clock: list[float], state: State, limit: float
) -> None:
    run = WatchedRun("run 1", tmp_path / "run.lock")
    assert run.see(Scheduled()) is None
    clock[0] += 1000
    assert run.see(state) is None, "it has just come into this state"
    clock[0] += limit
    assert run.see(state) is None
    clock[0] += 1
    found = run.see(state)
    assert found
    assert found.type is StateType.CRASHED
    assert run.see(Crashed()) is None


def test_run_whose_process_holds_the_lease_is_not_ended(tmp_path: Path, clock: list[float]) -> None:
    path = tmp_path / "run.lock"
    run = WatchedRun("run 1", path)
    with leases.holding(path, "at work", wait_s=0):
        for _ in range(3):
            assert run.see(Running()) is None
            clock[0] += 1000
        assert run.see(Running()) is None
    clock[0] += 4
    assert run.see(Running()) is None
    clock[0] += 4
    assert run.see(Running())


def test_run_that_did_its_work_but_whose_completed_was_refused_is_completed(
    tmp_path: Path, clock: list[float]
) -> None:
    path = tmp_path / "run.lock"
    run = WatchedRun("run 1", path)
    assert run.see(Running()) is None
    with leases.holding(path, "at work", wait_s=0) as lease:
        lease.write(ENDED)
    clock[0] += 1000
    found = run.see(Running())
    assert found
    assert found.type is StateType.COMPLETED


class StubPrefect:
    """Flow runs in memory: each state is set by the test, or by the campaign."""

    def __init__(self) -> None:
        self.states: dict[UUID, State] = {}

    def run_deployment(self, name: str, **_: Any) -> SimpleNamespace:
        run = uuid4()
        self.states[run] = Scheduled()
        return SimpleNamespace(id=run)

    def set_flow_run_state(self, run: UUID, state: State, force: bool = False) -> None:
        self.states[run] = state

    def read_flow_runs(self, flow_run_filter: Any, limit: int) -> list[SimpleNamespace]:
        assert limit <= 200, "Prefect refuses more"
        wanted = [run for run in flow_run_filter.id.any_ if run in self.states]
        return [SimpleNamespace(id=run, state=self.states[run]) for run in wanted[:limit]]

    def of(self, kind: StateType) -> list[UUID]:
        return [run for run, state in self.states.items() if state.type is kind]


@pytest.fixture
def stub(monkeypatch: pytest.MonkeyPatch) -> StubPrefect:
    found = StubPrefect()
    monkeypatch.setattr(pool_share, "run_deployment", found.run_deployment)
    return found


class Pool:
    """A pool's share of three cells, with what its simulated workers hold."""

    def __init__(self, stub: StubPrefect, folder: Path) -> None:
        self.claims = Claims(folder / "c", 1)
        self.share = PoolShare(
            stub,  # type: ignore[arg-type]
            SweepOptions(models=("m",), profiles=("card",)),
            "cards",
            self.claims,
            list(KEYS),
        )
        self._stub = stub
        self._work = ExitStack()

    def goes_on(self) -> bool:
        return self.share.goes_on({run: self._stub.states[run] for run in self.share.active})

    def take(self, cell: int) -> UUID:
        """A simulated worker takes the spare run, and claims the cell."""
        (run,) = self._stub.of(StateType.SCHEDULED)
        self._stub.states[run] = Running()
        self._work.enter_context(leases.holding(self._lease(run), "at work", wait_s=0))
        self._work.enter_context(self.claims.take(KEYS[cell], str(run)))
        return run

    def end(self) -> None:
        """Every simulated worker ends its cell, and its run."""
        self._work.close()
        for run in self._stub.of(StateType.RUNNING):
            self._stub.states[run] = Completed()

    def _lease(self, run: UUID) -> Path:
        return CampaignLayout(folder=self.claims.folder).run(str(run))


@pytest.fixture
def pool(stub: StubPrefect, tmp_path: Path) -> Pool:
    return Pool(stub, tmp_path)


def test_one_run_is_spare_while_cells_are_unclaimed_and_it_is_cancelled_at_the_end(
    pool: Pool, stub: StubPrefect
) -> None:
    for cell in range(3):
        for _ in range(3):
            assert pool.goes_on()
        assert len(stub.of(StateType.SCHEDULED)) == 1
        pool.take(cell)
    assert pool.goes_on()
    assert not stub.of(StateType.SCHEDULED), "every cell is claimed"
    pool.end()
    assert not pool.goes_on()
    assert len(stub.of(StateType.COMPLETED)) == len(stub.states) == 3


def test_spare_run_is_cancelled_when_the_last_cell_is_claimed_by_a_run_that_works(
    pool: Pool, stub: StubPrefect
) -> None:
    pool.goes_on()
    pool.take(0)
    pool.goes_on()
    with pool.claims.take(KEYS[1], "a"), pool.claims.take(KEYS[2], "b"):
        assert pool.goes_on()
    assert len(stub.of(StateType.CANCELLED)) == 1
    pool.end()
    assert not pool.goes_on()


def test_starting_runs_are_no_more_than_the_unclaimed_cells(pool: Pool, stub: StubPrefect) -> None:
    for _ in range(6):
        pool.goes_on()
        for run in stub.of(StateType.SCHEDULED):
            stub.states[run] = Pending()
    assert len(stub.of(StateType.PENDING)) == len(KEYS)


def test_pool_whose_runs_end_without_a_cell_is_given_up(pool: Pool, stub: StubPrefect) -> None:
    for _ in range(FRUITLESS):
        assert pool.goes_on()
        (run,) = stub.of(StateType.SCHEDULED)
        stub.states[run] = Failed(message="this host is not ready")
    assert not pool.goes_on()
    assert len(stub.states) == FRUITLESS


def test_cell_of_a_dead_run_gets_a_spare_run_again(pool: Pool, stub: StubPrefect, clock: list[float]) -> None:
    pool.goes_on()
    pool.take(0)
    pool.goes_on()
    with pytest.raises(KeyboardInterrupt), pool.claims.take(KEYS[1], "x"), pool.claims.take(KEYS[2], "y"):
        assert pool.goes_on()
        assert not stub.of(StateType.SCHEDULED)
        raise KeyboardInterrupt
    assert pool.goes_on()
    assert len(stub.of(StateType.SCHEDULED)) == 1


def test_how_to_start_a_worker_is_logged_once(
    pool: Pool, clock: list[float], caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", "servegrid")
    for _ in range(4):
        pool.goes_on()
        clock[0] += 50
    (line,) = [text for text in caplog.messages if "prefect worker start" in text]
    assert "--pool cards --limit 1" in line


@pytest.fixture
def own(stub: StubPrefect, monkeypatch: pytest.MonkeyPatch) -> UUID:
    """The campaign's own run."""
    run = uuid4()
    stub.states[run] = Running()
    monkeypatch.setattr(fan_out.runtime, "flow_run", SimpleNamespace(id=str(run)))
    monkeypatch.setattr(fan_out, "POLL_S", 0.0)
    return run


def test_runs_are_listed_page_by_page(stub: StubPrefect) -> None:
    runs = [stub.run_deployment("").id for _ in range(450)]
    deleted = runs.pop(300)
    del stub.states[deleted]
    found = fan_out.states_of(stub, [*runs, deleted])  # type: ignore[arg-type]
    assert set(found) == set(runs)


def test_error_of_the_report_so_far_ends_no_run(
    pool: Pool, stub: StubPrefect, own: UUID, caplog: pytest.LogCaptureFixture
) -> None:
    rows = CampaignLayout(folder=pool.claims.folder).rows
    rows.parent.mkdir(parents=True)
    rows.write_text("{}\n")
    calls = []

    def fails() -> None:
        calls.append(None)
        for run in stub.of(StateType.SCHEDULED):
            stub.states[run] = Failed()
        with rows.open("a") as file:
            file.write("{}\n")
        raise OSError("No space left on device")

    fan_out._follow(stub, [pool.share], pool.claims.folder, fails)  # type: ignore[arg-type]
    assert len(calls) == FRUITLESS, "the campaign went on after each"
    assert not stub.of(StateType.CANCELLING)
    assert "No space left on device" in caplog.text


@pytest.mark.parametrize("state", [Cancelled(), None])
def test_campaign_whose_own_run_is_cancelled_or_deleted_ends(
    pool: Pool, stub: StubPrefect, own: UUID, state: State | None
) -> None:
    if state:
        stub.states[own] = state
    else:
        del stub.states[own]
    with pytest.raises(CancelledError):
        fan_out._follow(stub, [pool.share], pool.claims.folder, lambda: None)  # type: ignore[arg-type]
