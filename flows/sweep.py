"""The flow `sweep`: a campaign over models and devices, and its report."""

from __future__ import annotations

import logging
import time
from pathlib import Path
from typing import Any

from prefect import flow, tags
from prefect.states import Cancelled, Completed, Failed

from flows.cancelling import CancelledError, heeding_cancellation
from flows.fan_out import check_deployments, run_all
from flows.qualify import qualify
from servegrid.campaign import results
from servegrid.campaign.campaign import leading, new_campaign, read, unreached
from servegrid.campaign.layout import CampaignLayout
from servegrid.loadgen.choosing import generator_notes
from servegrid.plan.options import SweepOptions
from servegrid.reporting.writing import write
from servegrid.store.site import default_site
from tasks import planning
from tasks.report import report

log = logging.getLogger("servegrid")

REPORT_S = 60.0
"""While a campaign runs on workers, its report is written at most this often."""


@flow(name="sweep", flow_run_name="{options.subject} on {options.place}")
def sweep(
    options: SweepOptions = SweepOptions(),  # noqa: B008  # frozen
    campaign: str | None = None,
    resume: bool = False,
) -> Any:
    """Qualify every model of the options on every profile, then report; failed when a cell is `error`,
    `failed_accuracy` or was not reached. A resumed campaign goes on with its own options and its kept plan,
    at the cells that are not finished."""
    site = default_site()
    folder = results.campaign_folder(site.results, campaign or new_campaign())
    options = read(folder).options if resume else options
    if options.workers:
        check_deployments(options)
    if resume:
        planning.resume(folder, site)
    else:
        planning.begin(folder, options, site)
    kept = read(folder)
    options = kept.options
    for line in generator_notes(options, kept.plans, site):
        log.info(line)
    with leading(folder) as attempt:
        try:
            if options.workers:
                run_all(options, folder, attempt, on_rows=_Partial(folder))
            else:
                with heeding_cancellation():
                    for profile in dict.fromkeys(entry.profile for entry in kept.plans):
                        with tags(folder.name, profile):
                            qualify(options.on(profile), folder.name)
        except CancelledError:
            again = f"`servegrid sweep --resume {folder.name}` goes on"
            return Cancelled(message=f"campaign {folder.name}: cancelled; {again}")
        finally:
            if CampaignLayout(folder=folder).rows.exists():
                report(folder)
    return final_state(folder)


def final_state(folder: Path) -> Any:
    """The number of cells of each verdict; completed if every cell has one, and none fails the campaign."""
    cells, _ = results.read(folder) if CampaignLayout(folder=folder).rows.exists() else (None, None)
    counts: dict[str, int] = {}
    if cells is not None:
        counts = dict(cells["verdict"].value_counts().sort("verdict").iter_rows())
    known = set() if cells is None else set(cells.select("cell", "profile").iter_rows())
    left = unreached(folder)
    lost = sorted(f"{cell} on {profile}" for cell, profile in left if (cell, profile) not in known)
    if lost:
        counts[f"without a row ({', '.join(lost)})"] = len(lost)
    message = f"campaign {folder.name}: " + ", ".join(f"{n} {what}" for what, n in counts.items())
    if left:
        message += f"; `servegrid sweep --resume {folder.name}` goes on"
    failed = left or any(verdict in counts for verdict in results.FAILING)
    return Failed(message=message) if failed else Completed(message=message)


class _Partial:
    """When called, writes the report of the rows so far, unless the last one is too recent."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._last = 0.0

    def __call__(self) -> None:
        if time.monotonic() - self._last >= REPORT_S:
            write(self._folder)
            self._last = time.monotonic()
