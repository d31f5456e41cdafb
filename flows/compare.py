"""The flow `compare`: two cells built, served at once and measured in interleaved runs."""

from __future__ import annotations

import logging
from contextlib import ExitStack

from prefect import flow, task
from prefect.cache_policies import NO_CACHE

from flows import forecast
from flows.planning import preflight
from flows.qualify import Built, build_cell, workplace
from servegrid.campaign.layout import ProfileLayout
from servegrid.domain.errors import UserError
from servegrid.domain.server import ServerChoice
from servegrid.domain.values import Cell, Scenario, Value
from servegrid.host.environment import device_lock, pin_card
from servegrid.host.stage_timer import work
from servegrid.plan.options import SweepOptions
from servegrid.plan.server_choosing import own_server
from servegrid.regression.campaigns import SETTINGS, Rule
from servegrid.regression.interleaved import PAIRS, RUN_S, CandidateEndpoint, InterleavedJob, measure
from servegrid.regression.verdict import RELEVANT, CellComparison, Comparison, Figures, judge
from servegrid.servers import server
from servegrid.store.build import Workplace
from servegrid.store.site import default_site
from tasks.configure import Configured, configure
from tasks.deploy import deploy

log = logging.getLogger("servegrid")


class Candidate(Value):
    """A cell of the comparison, built and configured; `at.cell` tells the two apart."""

    cell: Cell
    built: Built
    configured: Configured
    server: ServerChoice
    at: Workplace


@flow(name="compare", flow_run_name="{a} against {b}")
def compare_cells(
    a: str,
    b: str,
    options: SweepOptions,
    campaign: str,
    rule: Rule,
    pairs: int = PAIRS,
) -> Comparison:
    """Build both cells, serve both at once, and compare them at every point that both have.

    Raises:
        UserError: a cell is unknown or does not run here, or they have no point in common.
        StepError: a step failed.
    """
    pin_card()
    sides = [_candidate(name, mark, options, campaign) for mark, name in (("a", a), ("b", b))]
    common = _common_points(*(side.cell for side in sides))
    figures: list[Figures] = []
    files = ProfileLayout(folder=sides[0].at.logs.parent)
    with ExitStack() as stack:
        running = [
            stack.enter_context(
                server(s.server, s.at.site, s.configured.repository, files.server_log(s.at.cell))
            )
            for s in sides
        ]
        for scenario in ("online", "offline"):
            endpoints = []
            for side, on in zip(sides, running, strict=True):
                serving = side.cell.dynamic if scenario == "online" else side.cell.static
                endpoint = deploy(on, side.configured, serving, side.built.samples, side.at)
                samples = side.at.site.store.path(side.built.samples)
                endpoints.append(CandidateEndpoint(endpoint=endpoint, samples=samples))
            for batch, concurrency in common[scenario]:
                job = InterleavedJob(
                    a=endpoints[0], b=endpoints[1], batch=batch, concurrency=concurrency, pairs=pairs
                )
                figures += interleaved_runs(scenario, job, sides[0].at)
    return _comparison(sides[0], sides[1], figures, rule, pairs)


@task(task_run_name="turns {scenario} {job.batch} x {job.concurrency}", cache_policy=NO_CACHE)
def interleaved_runs(scenario: Scenario, job: InterleavedJob, at: Workplace) -> tuple[Figures, ...]:
    """One point, alone on the device."""
    with device_lock(at.profile, exclusive=True), work("turns"):
        found = measure(job, at.logs, scenario).figures(scenario, job)
    (rate, *_) = judge(found)
    log.info("%s: %.1f and %.1f inferences/s, %s", rate.figures.point, rate.a, rate.b, rate.text)
    return found


def _candidate(name: str, mark: str, options: SweepOptions, campaign: str) -> Candidate:
    site = default_site()
    entry, cell, left_out = forecast.find(name, options, site)
    if left_out:
        raise UserError(f"{name}: does not run: {left_out}")
    choice = own_server(entry.server, cell)
    preflight(options, entry, site)
    at = workplace(entry.plugin, cell, site, campaign)
    at = at.model_copy(update={"cell": f"{mark}.{cell.name}"})
    built = build_cell(entry.plugin, cell, campaign, at)
    variant = entry.plugin.spec.variants[cell.product.variant]
    repository = ProfileLayout(folder=at.logs.parent).repository(at.cell)
    configured = configure(cell, built.converted, repository, at, variant.convert.workspace_bytes)
    return Candidate(cell=cell, built=built, configured=configured, server=choice, at=at)


def _common_points(a: Cell, b: Cell) -> dict[Scenario, list[tuple[int, int]]]:
    """(batch, concurrency) of every point that both cells are measured at."""
    found: dict[Scenario, list[tuple[int, int]]] = {
        "online": [point for point in a.online.points if point in b.online.points],
        "offline": [point for point in a.offline.points if point in b.offline.points],
    }
    if not any(found.values()):
        raise UserError(f"{a.name} and {b.name} have no point in common")
    return found


def _comparison(a: Candidate, b: Candidate, figures: list[Figures], rule: Rule, pairs: int) -> Comparison:
    names = [a.cell.name, b.cell.name]
    relevant = RELEVANT if rule.relevant is None else rule.relevant
    entry = CellComparison(
        cell=names[1] if names[0] == names[1] else " against ".join(names),
        judged=judge(figures, rule.confidence, relevant),
        differences=tuple(_differing(a.cell, b.cell)),
    )
    return Comparison(
        a=names[0],
        b=names[1],
        method=f"Student's t intervals of logarithms, {rule.confidence:.0%} for all figures together, from "
        f"{pairs} pairs of turns of {RUN_S:g} s or more; a regression lies wholly beyond {relevant:.0%}",
        cells=(entry,),
    )


def _differing(a: Cell, b: Cell) -> list[str]:
    """Fields of product and serving by which the cells differ: that is what is compared."""
    facts = [c.product.model_dump(mode="json") | c.dynamic.model_dump(mode="json") for c in (a, b)]
    return [
        f"{name}: {facts[0][name]} in A, {facts[1][name]} in B"
        for name in SETTINGS
        if facts[0].get(name) != facts[1].get(name)
    ]
