"""The flow `tune`: find the serving of a cell with the highest throughput within a latency bound."""

from __future__ import annotations

import logging
from pathlib import Path

import polars as pl
from prefect import flow

from flows.named_cell import build_named, find_cell
from servegrid.campaign.layout import CampaignLayout
from servegrid.domain.slo import Slo
from servegrid.domain.values import Endpoint, Value
from servegrid.host.cards import pin_card
from servegrid.host.device_locks import device_lock
from servegrid.loadgen.base import Target
from servegrid.loadgen.measured import measure_point
from servegrid.loadgen.search.points import holds, point_of
from servegrid.loadgen.search.tuning import Axes, Setting, Trial, grid, search, winner
from servegrid.loadgen.warm_up import warm_up
from servegrid.plan.options import SweepOptions
from servegrid.store.site import default_site

log = logging.getLogger("servegrid")


class Tuned(Value):
    """Every trial, and the best one; None: no trial met the bound."""

    trace: tuple[Trial, ...]
    best: Trial | None
    folder: Path


@flow(name="tune", flow_run_name="{name} within {slo}")
def tune_cell(name: str, slo: Slo, axes: Axes, options: SweepOptions, campaign: str) -> Tuned:
    """Build the cell, then measure its settings one after the other, at the online plan's client batch.

    The trace lies in results/<campaign>/trace.parquet and trace.csv.

    Raises:
        UserError: the cell is unknown, does not run here, or does not batch.
        StepError: a step failed.
    """
    site = default_site()
    entry, cell = find_cell(name, options, site)
    settings = grid(cell.dynamic, axes)
    pin_card(cell.dynamic.device_kind)
    candidate = build_named(entry, cell, site, campaign)
    at, plan = candidate.at, cell.online
    batch, loaded = plan.batch_sizes[0], dict[Setting, Endpoint]()
    with candidate.serve() as served:

        def measure(setting: Setting, concurrency: int) -> Trial:
            serving = setting.serving(cell.dynamic)
            if fresh := setting not in loaded:
                loaded.clear()
                sizes = (batch, serving.max_batch_size)
                loaded[setting] = served.reconfigured(serving).load(serving, sizes)
            point = point_of(plan, batch, concurrency=concurrency)
            stem = f"{cell.name}.i{setting.instances}d{setting.max_queue_delay_us}"
            stem = f"{stem}p{'-'.join(map(str, setting.preferred_batch_sizes))}"
            samples = site.store.path(served.samples)
            target = Target(endpoint=loaded[setting], samples=samples, logs=at.logs, name=stem)
            with device_lock(at.profile, exclusive=True):
                if fresh and plan.warm_up:
                    warm_up(plan, target, at.timeout_s)
                found, trust = measure_point(plan.generator, point, target, site)
            latency, within = float(getattr(found, slo.column)), holds(slo, found)
            line = "%s, concurrency %d: %.1f inferences/s, %s %.2f ms%s%s"
            over = "" if within else "  (over the bound)"
            fails = f"  (failed checks: {', '.join(trust.failed_checks)})" if trust.failed_checks else ""
            log.info(line, setting, concurrency, found.throughput, slo.statistic, latency, over, fails)
            return Trial(
                setting=setting,
                concurrency=concurrency,
                throughput=found.throughput,
                latency_ms=latency,
                stable=found.stable,
                holds=within and found.stable,
                failed_checks=trust.failed_checks,
            )

        most = axes.max_concurrency or 2 * cell.dynamic.max_batch_size * max(axes.instances)
        trace = search(settings, measure, slo, most)
    layout = CampaignLayout(folder=site.results / campaign)
    _keep(trace, layout)
    return Tuned(trace=tuple(trace), best=winner(trace), folder=layout.folder)


def _keep(trace: list[Trial], layout: CampaignLayout) -> None:
    """A row a trial; preferred sizes and failed checks as text, which both forms can hold."""
    rows = [
        {
            **t.setting.model_dump(),
            **t.model_dump(exclude={"setting"}),
            "preferred_batch_sizes": " ".join(map(str, t.setting.preferred_batch_sizes)),
            "failed_checks": " ".join(t.failed_checks),
        }
        for t in trace
    ]
    table = pl.DataFrame(rows, infer_schema_length=None)
    table.write_parquet(layout.trace("parquet"))
    table.write_csv(layout.trace("csv"))
