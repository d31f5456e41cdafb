"""What a campaign would find in the store, and how long it would take: nothing is built to tell."""

from __future__ import annotations

from collections.abc import Sequence

from flows.planning import plan
from flows.qualify import build_cell, workplace
from servegrid.domain.errors import UserError, unknown
from servegrid.domain.plugins import Plugin
from servegrid.domain.values import ArtifactRef, Cell, Value
from servegrid.plan.model_plan import ModelPlan
from servegrid.plan.models import known_models, load_model
from servegrid.plan.options import SweepOptions
from servegrid.store.build import Workplace
from servegrid.store.site import Site
from servegrid.store.store import BuildRequest
from servegrid.store.why import UNKNOWN, Reason, explain
from tasks.caching import BuildTask
from tasks.prepare import check_sources

NEXT = "the next one"
"""Stands for the campaign that has no name yet."""


def requests(plugin: Plugin, cell: Cell, site: Site) -> tuple[BuildRequest, ...]:
    """The request of every build stage, in order; an input that the store has not is UNKNOWN in it.

    The baseline is left out: each campaign measures it anew.

    Raises:
        UserError: files that the variant reads are not there.
    """
    found: list[BuildRequest] = []

    def look_up(stage: BuildTask, request: BuildRequest, at: Workplace) -> ArtifactRef:
        if request.stage != "baseline":
            found.append(request)
        return site.store.known(request.key) or UNKNOWN

    if not cell.product.random_weights:
        check_sources(plugin, cell.product.variant, site)
    at = workplace(plugin, cell, site, NEXT)
    build_cell(plugin, cell, NEXT, at, make=look_up)
    return tuple(found)


class Expected(Value):
    """What a cell's next run would find: build stages by what the store has, and the time of its last run.

    `missing` is the reason why the stages are unknown.
    """

    stored: tuple[str, ...] = ()
    to_build: tuple[str, ...] = ()
    missing: str = ""
    wall_s: float | None = None

    @property
    def line(self) -> str:
        """What is stored and what is built, in one line."""
        if self.missing:
            return self.missing
        total = len(self.stored) + len(self.to_build)
        built = f"; builds {', '.join(self.to_build)}" if self.to_build else ""
        return f"{len(self.stored)} of {total} stages{built}"


def expect(plugin: Plugin, cell: Cell, site: Site, last: dict[tuple[str, str, bool], float]) -> Expected:
    """What is known of a cell's next run; `last` is `last_wall_s` of the results.

    A stage whose inputs have to be built counts as one to build.
    """
    wall_s = last.get((cell.name, cell.profile, cell.product.random_weights))
    try:
        found = requests(plugin, cell, site)
    except UserError:
        return Expected(missing="files that the variant reads are not there", wall_s=wall_s)
    stored = [request.stage for request in found if site.store.known(request.key)]
    to_build = [request.stage for request in found if not site.store.known(request.key)]
    return Expected(stored=tuple(stored), to_build=tuple(to_build), wall_s=wall_s)


def why(plugin: Plugin, cell: Cell, site: Site) -> tuple[Reason, ...]:
    """Why each build stage of a cell would be built, or not."""
    kin = f"{cell.product.model}-{cell.product.variant}-"
    return tuple(explain(request, site.store, kin) for request in requests(plugin, cell, site))


def find(name: str, options: SweepOptions, site: Site) -> tuple[ModelPlan, Cell, str | None]:
    """The cell of that name with its model, and why it would not run, if a rule says so.

    Raises:
        UserError: no model has such a cell.
    """
    names: list[str] = []
    models = known_models(site.models)
    for model in [m for m in models if name.startswith(f"{m}-")] or models:
        for variant in load_model(site.models, model).spec.variants:
            for entry in plan(options.model_copy(update={"models": (model,), "variant": variant}), site):
                found: dict[str, tuple[Cell, str | None]] = {c.name: (c, None) for c in entry.plan.cells}
                found.update({e.cell.name: (e.cell, e.reason) for e in entry.plan.excluded})
                if name in found:
                    return entry, *found[name]
                names += found
    raise unknown("cell", name, names)


def summary(times: Sequence[float | None]) -> str:
    """How many cells there are, the seconds that those with a last time take, and how many have none."""
    known = [seconds for seconds in times if seconds is not None]
    parts = [f"{len(times)} cell{'' if len(times) == 1 else 's'}"]
    if known:
        parts.append(f"expected: {sum(known):.0f} s")
    if len(known) < len(times):
        parts.append(f"{len(times) - len(known)} never run before")
    return "; ".join(parts)
