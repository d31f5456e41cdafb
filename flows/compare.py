"""The flow `compare`: two cells built, served at once and measured in interleaved runs."""

from __future__ import annotations

import logging
from contextlib import ExitStack

from prefect import flow, task
from prefect.cache_policies import NO_CACHE

from flows.named_cell import build_named, find_cell
from flows.serving import ServedCell
from servegrid.domain.errors import UserError
from servegrid.domain.values import Cell, Scenario
from servegrid.host.cards import pin_card
from servegrid.host.device_locks import device_lock
from servegrid.host.stage_timer import work
from servegrid.plan.options import SweepOptions
from servegrid.regression.campaigns import SETTINGS, Rule
from servegrid.regression.interleaved import PAIRS, RUN_S, CandidateEndpoint, InterleavedJob, measure
from servegrid.regression.verdict import RELEVANT, CellComparison, Comparison, Figures, judge
from servegrid.store.build import Workplace
from servegrid.store.site import default_site

log = logging.getLogger("servegrid")

SCENARIOS: tuple[Scenario, ...] = ("online", "offline")


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
    site = default_site()
    found = [find_cell(name, options, site) for name in (a, b)]
    pin_card(found[0][1].dynamic.device_kind)
    common = _common_points(*(cell for _, cell in found))
    candidates = [
        build_named(entry, cell, site, campaign, prefix)
        for prefix, (entry, cell) in zip(("a.", "b."), found, strict=True)
    ]
    figures: list[Figures] = []
    with ExitStack() as stack:
        served = [stack.enter_context(candidate.serve()) for candidate in candidates]
        for scenario in SCENARIOS:
            endpoints = [_load(candidate, scenario) for candidate in served]
            for batch, concurrency in common[scenario]:
                job = InterleavedJob(
                    a=endpoints[0], b=endpoints[1], batch=batch, concurrency=concurrency, pairs=pairs
                )
                figures += interleaved_runs(scenario, job, candidates[0].at)
    return _comparison(found[0][1], found[1][1], figures, rule, pairs)


@task(task_run_name="interleaved {scenario} {job.batch} x {job.concurrency}", cache_policy=NO_CACHE)
def interleaved_runs(scenario: Scenario, job: InterleavedJob, at: Workplace) -> tuple[Figures, ...]:
    """One point, alone on the device."""
    with device_lock(at.profile, exclusive=True), work("interleaved"):
        found = measure(job, at.logs, scenario).figures(scenario, job)
    (rate, *_) = judge(found)
    log.info("%s: %.1f and %.1f inferences/s, %s", rate.figures.point, rate.a, rate.b, rate.text)
    return found


def _load(candidate: ServedCell, scenario: Scenario) -> CandidateEndpoint:
    """Load the candidate with the serving of the scenario."""
    cell = candidate.cell
    endpoint = candidate.load(cell.dynamic if scenario == "online" else cell.static)
    return CandidateEndpoint(endpoint=endpoint, samples=candidate.at.site.store.path(candidate.samples))


def _common_points(a: Cell, b: Cell) -> dict[Scenario, list[tuple[int, int]]]:
    """(batch, concurrency) of every point that both cells are measured at."""
    found: dict[Scenario, list[tuple[int, int]]] = {
        "online": [point for point in a.online.points if point in b.online.points],
        "offline": [point for point in a.offline.points if point in b.offline.points],
    }
    if not any(found.values()):
        raise UserError(f"{a.name} and {b.name} have no point in common")
    return found


def _comparison(a: Cell, b: Cell, figures: list[Figures], rule: Rule, pairs: int) -> Comparison:
    names = [a.name, b.name]
    relevant = RELEVANT if rule.relevant is None else rule.relevant
    entry = CellComparison(
        cell=names[1] if names[0] == names[1] else " against ".join(names),
        judged=judge(figures, rule.confidence, relevant),
        differences=tuple(_differing(a, b)),
    )
    return Comparison(
        a=names[0],
        b=names[1],
        method=f"Student's t intervals of logarithms, {rule.confidence:.0%} for all figures together, from "
        f"{pairs} pairs of runs of {RUN_S:g} s or more; a regression lies wholly beyond {relevant:.0%}",
        cells=(entry,),
    )


def _differing(a: Cell, b: Cell) -> list[str]:
    """The fields of product and serving in which the cells differ."""
    facts = [c.product.model_dump(mode="json") | c.dynamic.model_dump(mode="json") for c in (a, b)]
    return [
        f"{name}: {facts[0][name]} in A, {facts[1][name]} in B"
        for name in SETTINGS
        if facts[0].get(name) != facts[1].get(name)
    ]
