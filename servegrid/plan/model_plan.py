"""One model's part of a campaign."""

from __future__ import annotations

from servegrid.domain.plugins import Plugin
from servegrid.domain.profile import GpuProfile
from servegrid.domain.server import ServerChoice
from servegrid.domain.values import Cell, Excluded, Generator, Value
from servegrid.plan.matrix import Plan

Key = tuple[str, str]
"""Name and profile of a cell: unique in a campaign."""


class KeptPlan(Value):
    """One model's part of a campaign on one profile, as the campaign's file keeps it."""

    model: str
    profile: str
    server: ServerChoice
    plan: Plan

    @property
    def keys(self) -> tuple[Key, ...]:
        """The keys of the rows that this part ends with."""
        return tuple((cell.name, cell.profile) for cell in self.plan.every_cell)


class ModelPlan(Value):
    """The same with the model folder and the profile that it is for."""

    plugin: Plugin
    profile: GpuProfile
    server: ServerChoice
    plan: Plan

    @property
    def kept(self) -> KeptPlan:
        """What the campaign's file keeps; every process reads the folder and the profile for itself."""
        return KeptPlan(
            model=self.plugin.spec.name, profile=self.profile.name, server=self.server, plan=self.plan
        )


def with_identity(plan: Plan, plugin: Plugin) -> Plan:
    """The plan with the model's file and the settings in each cell's identity."""

    def identified(cell: Cell) -> Cell:
        product = cell.product.model_copy(update={"model_digest": plugin.model_digest})
        return cell.model_copy(update={"product": product, "settings": plugin.settings})

    return Plan(
        cells=tuple(map(identified, plan.cells)),
        excluded=tuple(Excluded(cell=identified(e.cell), reason=e.reason) for e in plan.excluded),
    )


def with_generator(plan: Plan, generator: Generator) -> Plan:
    """The plan with this load generator where it can measure: perf_analyzer sends batches of 1 to a server
    without batching, so such cells keep the client."""
    cells = []
    for cell in plan.cells:
        usable = {"generator": generator if cell.static.batches else "client"}
        loads = {name: getattr(cell, name).model_copy(update=usable) for name in ("offline", "online")}
        cells.append(cell.model_copy(update=loads))
    return plan.model_copy(update={"cells": tuple(cells)})
