"""The flow `qualify`: a worker claims cells of a campaign on its device, until none is left."""

from __future__ import annotations

import logging
from contextlib import nullcontext
from pathlib import Path

from prefect import flow, runtime, tags
from prefect.exceptions import TerminationSignal
from prefect.settings import PREFECT_FLOWS_HEARTBEAT_FREQUENCY, temporary_settings

from flows.cell import cell_writer, qualify_cell
from flows.claiming import PlannedCell, Share, in_order
from servegrid.campaign.campaign import read, working
from servegrid.campaign.cell_result import Outcome
from servegrid.campaign.cell_writer import CellWriter
from servegrid.campaign.claims import DEATHS, Claim, Claims
from servegrid.campaign.results import campaign_folder, finished
from servegrid.domain.errors import UserError
from servegrid.domain.plugins import load_profile
from servegrid.host.cards import card_uuid, pinned, using
from servegrid.plan.model_plan import Key, ModelPlan
from servegrid.plan.options import SweepOptions
from servegrid.store.site import Site, default_site
from tasks.planning import kept_plans, on_this_host, preflight
from tasks.report import summarize

log = logging.getLogger("servegrid")


@flow(name="qualify", flow_run_name="{options.place}")
def qualify(options: SweepOptions, campaign: str, attempt: int | None = None) -> None:
    """Qualify cells of one profile on this host's device, until every other is ended or held by another run;
    each ends as a row of the campaign.

    Cells that the campaign has finished before are left alone. A run with an attempt works for a campaign
    that another process leads, and ends with that process.
    """
    site = default_site()
    folder, run = campaign_folder(site.results, campaign), str(runtime.flow_run.id)
    # This run's heartbeat, which goes on, is enough: a cell with one of its own ends up to 1 s late (ADR 4).
    cells_without_heartbeat = temporary_settings({PREFECT_FLOWS_HEARTBEAT_FREQUENCY: None})
    own_cores = nullcontext() if attempt is None else pinned()  # a worker may have neighbours on other cards
    kind = load_profile(site.profiles, options.place).device_kind
    with working(folder, attempt, run), cells_without_heartbeat, using(kind), own_cores:
        models, refused = _models(options, folder, attempt, site)
        done = finished(folder)
        claims = Claims(folder, attempt=read(folder).attempt if attempt is None else attempt)
        left = [entry for entry in in_order(models) if entry.key not in done]
        share = Share(left, claims, run, site)
        shift = _Shift(campaign, folder, run, options)
        try:
            while shift.work_on_next(share):
                pass
        except (KeyboardInterrupt, TerminationSignal):
            if attempt is None:  # other runs go on with what this one leaves
                shift.skip(share)
            raise
        if shift.worked:
            summarize(folder, options.place, run)
        if refused:
            raise UserError("\n".join(refused))


def _models(
    options: SweepOptions, folder: Path, attempt: int | None, site: Site
) -> tuple[list[ModelPlan], list[str]]:
    """The plans of the profile's models, as this host can run them, and why it cannot run the others."""
    models, refused = [], []
    for kept in kept_plans(folder, options, site):
        try:
            model = on_this_host(kept, options, site)
            if attempt is not None:  # otherwise the leader, in this process, has checked
                preflight(options, model, site)
        except UserError as error:
            refused.append(f"{kept.plugin.spec.name}: {error}")
        else:
            models.append(model)
    return models, refused


class _Shift:
    """The cells that one run has worked on."""

    def __init__(self, campaign: str, folder: Path, run: str, options: SweepOptions) -> None:
        self.worked = False
        self._campaign, self._folder, self._run, self._options = campaign, folder, run, options
        self._writers: dict[str, CellWriter] = {}
        self._number = 0
        self._at: Key | None = None

    def work_on_next(self, share: Share) -> bool:
        """Claim a cell and qualify it; false when there is none to claim."""
        with share.next() as claimed:
            if claimed is None:
                return False
            entry, claim = claimed
            # A run that died may have written the row just before.
            if not (claim.dead and entry.key in finished(self._folder)):
                self._qualify(entry, claim, len(share.left))
                self.worked = True
            return True

    def skip(self, share: Share) -> None:
        """Write a row for every cell that this run leaves."""
        for entry in (entry for entry in share.left if entry.key != self._at):  # that one has its row
            outcome = Outcome(verdict="skipped", reason="interrupted")
            self._writer(entry.model).not_run(entry.cell, outcome)

    def _qualify(self, entry: PlannedCell, claim: Claim, left: int) -> None:
        model, cell = entry.model, entry.cell
        writer = self._writer(model)
        if entry.reason:
            writer.not_run(cell, Outcome(verdict="unsupported", reason=entry.reason))
        elif len(claim.dead) >= DEATHS:
            reason = f"{len(claim.dead)} runs died with this cell: {', '.join(claim.dead)}"
            writer.not_run(cell, Outcome(verdict="error", reason=reason))
        else:
            self._at = entry.key
            self._number += 1
            log.info("%s: cell %d of %d", cell.name, self._number, self._number + left - 1)
            product, run = cell.product, self._run
            card = [uuid] if (uuid := card_uuid()) else []
            with tags(self._campaign, product.model, product.format, product.precision, cell.profile, *card):
                arguments = (model.plugin, cell, model.server, self._campaign, run, self._options)
                qualify_cell(*arguments, return_state=True)

    def _writer(self, model: ModelPlan) -> CellWriter:
        name = model.plugin.spec.name
        if name not in self._writers:
            self._writers[name] = cell_writer(model.plugin, self._campaign, self._run, self._options)
        return self._writers[name]
