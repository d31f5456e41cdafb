"""One cell by its name, built: what `tune` and `compare --run` start with."""

from __future__ import annotations

from contextlib import AbstractContextManager

from flows.cell import Built, build_cell, workplace
from flows.serving import ServedCell, serve
from servegrid.domain.errors import UserError
from servegrid.domain.plugins import Plugin
from servegrid.domain.server import ServerChoice
from servegrid.domain.values import Cell, Value
from servegrid.plan.model_plan import ModelPlan
from servegrid.plan.options import SweepOptions
from servegrid.plan.server_choosing import own_server
from servegrid.store.build import Workplace
from servegrid.store.site import Site
from tasks.planning import cell_by_name, preflight


class BuiltCell(Value):
    """A cell that was built, and how its server is got; `at.cell` names its logs and its repository."""

    plugin: Plugin
    cell: Cell
    built: Built
    server: ServerChoice
    at: Workplace

    def serve(self) -> AbstractContextManager[ServedCell]:
        """A server for this cell, as long as the block runs."""
        return serve(self.plugin, self.cell, self.built.converted, self.built.samples, self.server, self.at)


def find_cell(name: str, options: SweepOptions, site: Site) -> tuple[ModelPlan, Cell]:
    """The cell of that name, and the plan of its model with the server that will be started for it.

    Raises:
        UserError: the cell is unknown or does not run here, or its server runs already.
    """
    entry, cell, left_out = cell_by_name(name, options, site)
    if left_out:
        raise UserError(f"{name}: does not run: {left_out}")
    entry = entry.model_copy(update={"server": own_server(entry.server, cell)})
    preflight(options, entry, site)
    return entry, cell


def build_named(entry: ModelPlan, cell: Cell, site: Site, campaign: str, prefix: str = "") -> BuiltCell:
    """Build the cell; the prefix tells the logs and repositories of two builds of one cell apart."""
    at = workplace(entry.plugin, cell, site, campaign)
    at = at.model_copy(update={"cell": f"{prefix}{cell.name}"})
    return BuiltCell(
        plugin=entry.plugin,
        cell=cell,
        built=build_cell(entry.plugin, cell, campaign, at),
        server=entry.server,
        at=at,
    )
