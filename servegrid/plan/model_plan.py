"""One model's part of a campaign."""

from __future__ import annotations

from servegrid.domain.plugins import Plugin
from servegrid.domain.profile import GpuProfile
from servegrid.domain.server import ServerChoice
from servegrid.domain.values import Value
from servegrid.plan.matrix import Plan


class ModelPlan(Value):
    """One model's part of a campaign, on one profile."""

    plugin: Plugin
    profile: GpuProfile
    plan: Plan
    server: ServerChoice = ServerChoice()

    @property
    def keys(self) -> tuple[tuple[str, str], ...]:
        """Cell and profile of every row that it ends with."""
        cells = (*self.plan.cells, *(entry.cell for entry in self.plan.excluded))
        return tuple((cell.name, cell.profile) for cell in cells)
