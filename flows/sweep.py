"""The flow `sweep`: a campaign over models, and its report."""

from __future__ import annotations

import secrets
from datetime import UTC, datetime
from typing import Any

from prefect import flow
from prefect.states import Completed, Failed

from flows.planning import SweepOptions
from flows.qualify import qualify
from tasks.core import results
from tasks.core.site import default_site
from tasks.report import report


def new_campaign() -> str:
    """An id that sorts by time and does not repeat."""
    return f"{datetime.now(UTC):%Y%m%d-%H%M%S}-{secrets.token_hex(2)}"


@flow(name="sweep", flow_run_name="{options.variant} on {options.profile}")
def sweep(options: SweepOptions = SweepOptions(), campaign: str | None = None) -> Any:  # noqa: B008  # frozen
    """Qualify every model of the options, then report; failed when a cell is `error` or `failed_accuracy`."""
    campaign = campaign or new_campaign()
    folder = default_site().results / campaign
    try:
        for name in options.models:
            qualify(options.model_copy(update={"models": (name,)}), campaign)
    finally:
        if (folder / "rows.jsonl").exists():
            report(folder)
    cells, _ = results.read(folder)
    counts = {str(verdict): count for verdict, count in cells["verdict"].value_counts().iter_rows()}
    message = f"campaign {campaign}: " + ", ".join(f"{count} {verdict}" for verdict, count in counts.items())
    failed = any(verdict in counts for verdict in results.FAILING)
    return Failed(message=message) if failed else Completed(message=message)
