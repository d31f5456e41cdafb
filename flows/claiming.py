"""The next cell of a run: the first that no other run holds, of those whose next build nobody is at."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from flows.cell import build_requests
from servegrid.campaign.claims import CellState, Claim, Claims
from servegrid.domain.errors import UserError
from servegrid.domain.values import Cell
from servegrid.plan.model_plan import Key, ModelPlan
from servegrid.store.site import Site


@dataclass(frozen=True)
class PlannedCell:
    """A cell of a profile's plan; `reason`: why it does not run here, empty if it runs."""

    model: ModelPlan
    cell: Cell
    reason: str = ""

    @property
    def key(self) -> Key:
        """Its name and profile."""
        return self.cell.name, self.cell.profile


def in_order(models: Iterable[ModelPlan]) -> list[PlannedCell]:
    """The cells in the order in which runs claim them: those that do not run, then one of each product, so
    that every build starts early, then the others."""
    excluded: list[PlannedCell] = []
    first: list[PlannedCell] = []
    others: list[PlannedCell] = []
    products: set[str] = set()
    for model in models:
        excluded += [PlannedCell(model, entry.cell, entry.reason) for entry in model.plan.excluded]
        for cell in model.plan.cells:
            product = cell.product.model_dump_json()
            (others if product in products else first).append(PlannedCell(model, cell))
            products.add(product)
    return [*excluded, *first, *others]


@dataclass
class Share:
    """The cells that a run may claim; `left` shrinks as they end."""

    left: list[PlannedCell]
    claims: Claims
    run: str
    site: Site

    @contextmanager
    def next(self) -> Iterator[tuple[PlannedCell, Claim] | None]:
        """Claim a cell while the block runs; None when there is none to claim."""
        for entry in self._claimable():
            with self.claims.take(entry.key, self.run) as claim:
                if claim:
                    yield entry, claim
                    return
        yield None

    def _claimable(self) -> Iterator[PlannedCell]:
        """Cells that nobody holds; those that need what another run builds now come last, and wait for it."""
        states = {entry.key: self.claims.state(entry.key) for entry in self.left}
        self.left = [entry for entry in self.left if states[entry.key] is not CellState.ENDED]
        held = [entry for entry in self.left if states[entry.key] is CellState.HELD]
        under_way = {key for key in map(self._next_build, held) if key}
        waiting = []
        for entry in self.left:
            if states[entry.key] is CellState.HELD:
                continue
            if under_way and self._next_build(entry) in under_way:
                waiting.append(entry)
            else:
                yield entry
        yield from waiting

    def _next_build(self, entry: PlannedCell) -> str | None:
        """The key of the first artifact of the cell that the store lacks, if there is one."""
        if entry.reason:
            return None
        try:
            requests = build_requests(entry.model.plugin, entry.cell, self.site)
        except UserError:  # files that its model reads are missing: the cell's own run says so
            return None
        return next((r.key for r in requests if not self.site.store.known(r.key)), None)
