"""A campaign's folder apart from its rows: its options, plan, attempts, leader and workers.

campaign.json holds the options, the number of the attempt, and the plan: cells to run, and exclusions with
reasons. The flow `sweep` holds the leader's lease while it runs, and writes the attempt into it; each
`qualify` run of a worker holds a lease of its own, named by the id of its flow run.
"""

from __future__ import annotations

import logging
import os
import secrets
import signal
import threading
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from contextvars import copy_context
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import polars as pl
from pydantic import ValidationError, field_validator

from servegrid.campaign import leases, results
from servegrid.campaign.campaign_folders import unknown_campaign
from servegrid.campaign.columns import REMOVED
from servegrid.campaign.layout import CampaignLayout
from servegrid.campaign.options_file import damaged
from servegrid.domain.errors import UserError
from servegrid.domain.values import Value
from servegrid.domain.yaml_files import explain
from servegrid.host.files import write_atomic
from servegrid.plan.model_plan import KeptPlan, Key
from servegrid.plan.options import SweepOptions

log = logging.getLogger("servegrid")

LEADER_S = 5.0
"""How long a new leader waits for the one before it, which may be ending."""
WATCH_S = 1.0
ENDED = "ended"
"""The text in the lease of a run that has done its work."""


class Campaign(Value):
    """`campaign.json`. `attempt` is 0 before the first process leads the campaign; `cells` are those of a
    campaign that was created before plans were kept."""

    options: SweepOptions
    attempt: int = 0
    plans: tuple[KeptPlan, ...] = ()
    cells: tuple[Key, ...] = ()

    @property
    def keys(self) -> tuple[Key, ...]:
        """The keys of the rows that the campaign ends with."""
        return tuple(key for entry in self.plans for key in entry.keys) or self.cells

    @field_validator("options", mode="before")
    @classmethod
    def _without_removed_options(cls, given: Any) -> Any:
        if not isinstance(given, dict):
            return given
        return {name: value for name, value in given.items() if name not in REMOVED}


def new_campaign() -> str:
    """An id that sorts by time and does not repeat."""
    return f"{datetime.now(UTC):%Y%m%d-%H%M%S}-{secrets.token_hex(2)}"


def create(folder: Path, options: SweepOptions, plans: Sequence[KeptPlan]) -> None:
    """Write the file of a campaign that nobody leads yet.

    Raises:
        UserError: the campaign exists already.
    """
    with _leader(folder, attempt=0, wait_s=0):
        if CampaignLayout(folder=folder).options.exists():
            raise UserError(
                f"campaign {folder.name} already exists: resume it with `servegrid sweep --resume "
                f"{folder.name}`, or take another name, or none"
            )
        _write(folder, Campaign(options=options, attempt=0, plans=tuple(plans)))


def keep_plans(folder: Path, plans: Sequence[KeptPlan]) -> None:
    """Add the plan to a campaign that was created before plans were kept, and that nobody leads.

    Raises:
        UserError: another process leads the campaign.
    """
    with _leader(folder, read(folder).attempt, wait_s=LEADER_S):
        _write(folder, read(folder).model_copy(update={"plans": tuple(plans)}))


def read(folder: Path) -> Campaign:
    """The options, plan and attempts of a campaign.

    Raises:
        UserError: no campaign was created there, or its file is damaged.
    """
    path = CampaignLayout(folder=folder).options
    try:
        return Campaign.model_validate_json(path.read_text(encoding="utf-8"))
    except (FileNotFoundError, NotADirectoryError) as error:
        raise unknown_campaign(path) from error
    except (OSError, ValueError) as error:
        why = explain(error, Campaign) if isinstance(error, ValidationError) else error
        raise damaged(path, why) from error


def unreached(folder: Path) -> list[Key]:
    """The cells that have no row yet, or were skipped; none if the folder has no campaign's file."""
    layout = CampaignLayout(folder=folder)
    if not layout.options.exists():
        return []
    ended: set[Key] = set()
    if layout.rows.exists():
        cells, _ = results.read(folder)
        ended = set(cells.filter(pl.col("verdict") != "skipped").select("cell", "profile").iter_rows())
    return [key for key in read(folder).keys if key not in ended]


@contextmanager
def leading(folder: Path) -> Iterator[int]:
    """Lead the campaign while the block runs; yields the number of this attempt, from 1.

    Raises:
        UserError: the campaign does not exist, or another process leads it.
    """
    campaign = read(folder)
    attempt = campaign.attempt + 1
    with _leader(folder, attempt, wait_s=LEADER_S):
        if read(folder).attempt != campaign.attempt:
            raise UserError(f"campaign {folder.name}: another process has just resumed it")
        _write(folder, campaign.model_copy(update={"attempt": attempt}))
        yield attempt


@contextmanager
def _leader(folder: Path, attempt: int, wait_s: float) -> Iterator[None]:
    with ExitStack() as stack:
        try:
            stack.enter_context(
                leases.holding(CampaignLayout(folder=folder).leader, str(attempt), wait_s=wait_s)
            )
        except leases.HeldError as error:
            raise UserError(f"campaign {folder.name} is running already, attempt {error}") from error
        yield


def _write(folder: Path, campaign: Campaign) -> None:
    write_atomic(
        CampaignLayout(folder=folder).options, campaign.model_dump_json(indent=1, exclude_unset=True)
    )


@contextmanager
def working(folder: Path, attempt: int | None, run: str) -> Iterator[None]:
    """Work for an attempt of the campaign; without a number, in the leader's own process.

    When the leader is gone, this process ends as by SIGTERM, and stops everything that it started.
    """
    if attempt is None:
        yield
        return
    layout, done = CampaignLayout(folder=folder), threading.Event()

    def watch() -> None:
        while not done.wait(WATCH_S):
            if leases.holder(layout.leader) != str(attempt):
                log.warning("campaign %s: attempt %d has ended, so this run ends", folder.name, attempt)
                os.kill(os.getpid(), signal.SIGTERM)
                return

    with leases.holding(layout.run(run), "at work", wait_s=0) as lease:
        # A copied context, so that its log lines belong to the flow run.
        threading.Thread(target=copy_context().run, args=(watch,), daemon=True).start()
        try:
            yield
            lease.write(ENDED)
        finally:
            done.set()
