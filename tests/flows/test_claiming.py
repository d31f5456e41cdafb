"""Which cell a run claims next."""

from __future__ import annotations

from pathlib import Path

import pytest

from flows.cell import build_requests
from flows.claiming import PlannedCell, Share, in_order
from servegrid.campaign.claims import CellState, Claims
from servegrid.plan.options import SweepOptions
from servegrid.store.site import Site, default_site
from tasks.planning import plan_for_any_host

OPTIONS = SweepOptions(models=("bert_large_qa",), formats=("onnx", "ts-trace"), accelerators=("none",))


@pytest.fixture
def site(tmp_path: Path) -> Site:
    return default_site().model_copy(update={"home": tmp_path / "home"})


@pytest.fixture
def cells(site: Site) -> list[PlannedCell]:
    return in_order(plan_for_any_host(OPTIONS.model_copy(update={"instances": (1, 2)}), site))


def share(cells: list[PlannedCell], folder: Path, run: str, site: Site) -> Share:
    return Share(list(cells), Claims(folder, 1), run, site)


def next_build(entry: PlannedCell, site: Site) -> str:
    requests = build_requests(entry.model.plugin, entry.cell, site)
    return next(request.key for request in requests if not site.store.known(request.key))


def test_cells_that_do_not_run_come_first_then_one_of_each_product(cells: list[PlannedCell]) -> None:
    does_run = [not entry.reason for entry in cells]
    assert does_run == sorted(does_run)
    assert not all(does_run)
    products = [entry.cell.product for entry in cells if not entry.reason]
    half = len(products) // 2
    assert half > 2
    assert sorted(p.model_dump_json() for p in products[:half]) == sorted(
        p.model_dump_json() for p in products[half:]
    )
    assert len({p.model_dump_json() for p in products[:half]}) == half


def test_every_cell_is_claimed_once_by_two_runs_in_turn(
    cells: list[PlannedCell], tmp_path: Path, site: Site
) -> None:
    runs = [share(cells, tmp_path, run, site) for run in ("a", "b")]
    taken = []
    while True:
        with runs[0].next() as first, runs[1].next() as second:
            assert not (first and second and first[0].key == second[0].key)
            taken += [claimed[0].key for claimed in (first, second) if claimed]
        if not first:
            break
    assert sorted(taken) == sorted(entry.key for entry in cells)
    assert {runs[0].claims.state(key) for key in taken} == {CellState.ENDED}


def test_cell_whose_next_build_another_run_makes_is_left_for_later(
    cells: list[PlannedCell], tmp_path: Path, site: Site
) -> None:
    runnable = [entry for entry in cells if not entry.reason]
    # Where every cell waits for one build, the second run waits, too: it takes the next cell.
    one, two = (share(runnable, tmp_path / "waiting", run, site) for run in ("a", "b"))
    with one.next() as first, two.next() as second:
        assert first
        assert second
        assert second[0].key == runnable[1].key
        assert next_build(first[0], site) == next_build(second[0], site)
    # A cell that needs another build goes before them.
    other = runnable[-1]
    plugin = other.model.plugin
    spec = plugin.spec.model_copy(update={"name": "another"})
    folder = plugin.model_copy(update={"spec": spec, "folder": default_site().models / "resnet50"})
    far = PlannedCell(other.model.model_copy(update={"plugin": folder}), other.cell)
    assert next_build(far, site) != next_build(runnable[0], site)
    one, two = (share([*runnable, far], tmp_path / "apart", run, site) for run in ("a", "b"))
    with one.next() as first, two.next() as second:
        assert first
        assert second
        assert first[0].key == runnable[0].key
        assert second[0] is far


def test_run_takes_the_cell_of_a_run_that_ended_before(
    cells: list[PlannedCell], tmp_path: Path, site: Site
) -> None:
    one, two = (share(cells[:1], tmp_path, run, site) for run in ("a", "b"))
    with pytest.raises(KeyboardInterrupt), one.next():
        with two.next() as nothing:
            assert nothing is None
        raise KeyboardInterrupt
    with two.next() as claimed:
        assert claimed
