"""The state of a campaign but for its rows: its options, its attempts, its leader and its workers.

The flow `sweep` holds the leader's lease while it runs, and writes the attempt into it; each `qualify` run
holds a lease of its own, with the id of its flow run.
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

import polars as pl
from pydantic import ValidationError

from servegrid.campaign import leases, results
from servegrid.campaign.campaign_folders import unknown_campaign
from servegrid.campaign.layout import CampaignLayout
from servegrid.campaign.options_file import damaged
from servegrid.domain.errors import UserError
from servegrid.domain.values import Value
from servegrid.domain.yaml_files import explain
from servegrid.host.files import write_atomic
from servegrid.plan.model_plan import ModelPlan
from servegrid.plan.options import SweepOptions

log = logging.getLogger("servegrid")

LEADER_S = 5.0
"""How long a resumed campaign waits for the leader before it, which may be ending."""
RUN_S = 60.0
"""How long a `qualify` run waits for the one before it, which may be ending."""
WATCH_S = 1.0

Key = tuple[str, str]
"""Cell and profile."""


class Campaign(Value):
    """`campaign.json`."""

    options: SweepOptions
    attempt: int
    cells: tuple[Key, ...]


def new_campaign() -> str:
    """An id that sorts by time and does not repeat."""
    return f"{datetime.now(UTC):%Y%m%d-%H%M%S}-{secrets.token_hex(2)}"


def read(folder: Path) -> Campaign:
    """The options, cells and attempts of a campaign.

    Raises:
        UserError: no campaign was begun there, or its file is damaged.
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
    """The cells that have no row yet, or were skipped; of a campaign that names no cells, none."""
    layout = CampaignLayout(folder=folder)
    if not layout.options.exists():
        return []
    ended: set[Key] = set()
    if layout.rows.exists():
        cells, _ = results.read(folder)
        ended = set(cells.filter(pl.col("verdict") != "skipped").select("cell", "profile").iter_rows())
    return [key for key in read(folder).cells if key not in ended]


@contextmanager
def leading(
    folder: Path, options: SweepOptions, plans: Sequence[ModelPlan], *, resume: bool
) -> Iterator[int]:
    """Lead the campaign for as long as the block runs; the number of this attempt, from 1.

    Raises:
        UserError: somebody leads it already, or it was begun before and is not to be resumed.
    """
    layout = CampaignLayout(folder=folder)
    attempt = read(folder).attempt + 1 if resume else 1
    with ExitStack() as stack:
        try:
            lease = leases.holding(layout.leader, str(attempt), wait_s=LEADER_S if resume else 0)
            stack.enter_context(lease)
        except leases.HeldError as error:
            raise UserError(f"campaign {folder.name}: it is running already, attempt {error}") from error
        if not resume and layout.options.exists():
            raise UserError(
                f"campaign {folder.name}: it was begun already; take another name, or none, or go on with "
                f"`servegrid sweep --resume {folder.name}`"
            )
        if resume and read(folder).attempt != attempt - 1:
            raise UserError(f"campaign {folder.name}: another process went on with it just now")
        cells = tuple(key for entry in plans for key in entry.keys)
        begun = Campaign(options=options, attempt=attempt, cells=cells)
        write_atomic(layout.options, begun.model_dump_json(indent=1, exclude_unset=True))
        yield attempt


def run_lease(folder: Path, options: SweepOptions) -> Path:
    """The lease of the `qualify` run of these options, which name one model and one profile."""
    return CampaignLayout(folder=folder).run(options.title, options.place)


@contextmanager
def working(folder: Path, options: SweepOptions, attempt: int | None, run: str) -> Iterator[None]:
    """Work for the campaign's attempt; without a number, in the leader's own process.

    When the leader is gone, this process ends as by SIGTERM: everything that it started is stopped.
    """
    leader = CampaignLayout(folder=folder).leader
    with leases.holding(run_lease(folder, options), run, wait_s=RUN_S):
        if attempt is None:
            yield
            return
        done = threading.Event()

        def watch() -> None:
            while not done.wait(WATCH_S):
                if leases.holder(leader) != str(attempt):
                    log.warning("campaign %s: attempt %d has ended; so does this run", folder.name, attempt)
                    os.kill(os.getpid(), signal.SIGTERM)
                    return

        # In a context of its own, so that what it logs is the flow run's.
        threading.Thread(target=copy_context().run, args=(watch,), daemon=True).start()
        try:
            yield
        finally:
            done.set()
