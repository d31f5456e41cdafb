"""The flow `sweep`: a campaign over models, and its report."""

from __future__ import annotations

import secrets
from datetime import UTC, datetime
from typing import Any

from prefect import flow
from prefect.states import Completed, Failed

from flows.options import SweepOptions
from flows.planning import plan, preflight
from flows.qualify import qualify
from tasks.core import results
from tasks.core.errors import UserError
from tasks.core.site import default_site
from tasks.report import report


def new_campaign() -> str:
    """An id that sorts by time and does not repeat."""
    return f"{datetime.now(UTC):%Y%m%d-%H%M%S}-{secrets.token_hex(2)}"


@flow(name="sweep", flow_run_name="{options.variant} on {options.profile}")
def sweep(options: SweepOptions = SweepOptions(), campaign: str | None = None) -> Any:  # noqa: B008  # frozen
    """Qualify every model of the options, then report; failed when a cell is `error` or `failed_accuracy`."""
    site = default_site()
    folder = results.campaign_folder(site.results, campaign or new_campaign())
    if (folder / "rows.jsonl").exists():
        raise UserError(f"campaign {folder.name}: it has rows already; take another name, or none")
    models = plan(options, site)
    for model in models:
        preflight(options, model, site)
    try:
        for model in models:
            qualify(options.only(model.plugin.spec.name), folder.name)
    finally:
        if (folder / "rows.jsonl").exists():
            report(folder)
    cells, _ = results.read(folder)
    lost = {cell.name for model in models for cell in model.plan.cells} - set(cells["cell"])
    counts = {str(verdict): count for verdict, count in cells["verdict"].value_counts().iter_rows()}
    if lost:
        counts[f"without a row ({', '.join(sorted(lost))})"] = len(lost)
    message = f"campaign {folder.name}: " + ", ".join(f"{n} {what}" for what, n in counts.items())
    failed = lost or any(verdict in counts for verdict in results.FAILING)
    return Failed(message=message) if failed else Completed(message=message)
