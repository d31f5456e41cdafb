"""The flow `qualify`: one worker's share of a campaign, the cells of one model on one device."""

from __future__ import annotations

import logging

from prefect import flow, runtime, tags
from prefect.exceptions import TerminationSignal
from prefect.settings import PREFECT_FLOWS_HEARTBEAT_FREQUENCY, temporary_settings

from flows.cell import cell_writer, qualify_cell
from servegrid.campaign.campaign import working
from servegrid.campaign.cell_result import Outcome
from servegrid.campaign.results import campaign_folder, finished
from servegrid.host.environment import pin_card
from servegrid.plan.options import SweepOptions
from servegrid.store.site import default_site
from tasks.planning import kept_plans, on_this_host, preflight
from tasks.report import summarize

log = logging.getLogger("servegrid")


@flow(name="qualify", flow_run_name="{options.label}")
def qualify(options: SweepOptions, campaign: str, attempt: int | None = None) -> None:
    """Qualify one model on this host's device; every cell ends as a row of the campaign.

    The options name one model and one profile. Cells that the campaign has finished before are left alone.
    A run with an attempt works for a campaign that another process leads, and ends with that process.
    """
    site = default_site()
    folder, run = campaign_folder(site.results, campaign), str(runtime.flow_run.id)
    # This run's heartbeat, which goes on, is enough: a cell with one of its own ends up to 1 s late (ADR 4).
    cells_without_heartbeat = temporary_settings({PREFECT_FLOWS_HEARTBEAT_FREQUENCY: None})
    with working(folder, options, attempt, run), cells_without_heartbeat:
        (kept,) = kept_plans(folder, options, site)
        model = on_this_host(kept, options, site)
        if attempt is not None:  # otherwise the leader, in this process, has checked
            preflight(options, model, site)
        pin_card()
        done = finished(folder)
        writer = cell_writer(model.plugin, campaign, run, options)
        for entry in model.plan.excluded:
            if (entry.cell.name, entry.cell.profile) not in done:
                writer.not_run(entry.cell, Outcome(verdict="unsupported", reason=entry.reason))
        cells = [cell for cell in model.plan.cells if (cell.name, cell.profile) not in done]
        for number, cell in enumerate(cells):
            log.info("%s: cell %d of %d", cell.name, number + 1, len(cells))
            try:
                product = cell.product
                with tags(campaign, product.model, product.format, product.precision, cell.profile):
                    qualify_cell(model.plugin, cell, model.server, campaign, run, options, return_state=True)
            except (KeyboardInterrupt, TerminationSignal):
                for left in cells[number:]:
                    writer.not_run(left, Outcome(verdict="skipped", reason="interrupted"))
                raise
        summarize(folder, model.profile.name, run)
