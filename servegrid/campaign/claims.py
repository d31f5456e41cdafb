"""Claims of cells: a `qualify` run claims a cell that nobody holds, and no other run works on it meanwhile.

A claim is a lease, so the kernel frees the cell of a run that dies. Its file keeps the attempt, the runs that
died with the cell, and whether the cell has ended in this attempt.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from enum import Enum
from pathlib import Path

from servegrid.campaign import leases
from servegrid.campaign.layout import CampaignLayout
from servegrid.domain.values import Value
from servegrid.plan.model_plan import Key

DEATHS = 5
"""A cell with which so many runs died in one attempt is not tried again: it may be what kills them."""


class CellState(Enum):
    """What a claim shows of its cell."""

    OPEN = "open"
    HELD = "held"
    ENDED = "ended"


class _Record(Value):
    """What the file of a claim holds: `runs` had the cell, and did not end it."""

    attempt: int = 0
    runs: tuple[str, ...] = ()
    ended: bool = False


class Claim(Value):
    """A claimed cell; `dead` are the runs that died with it in this attempt."""

    dead: tuple[str, ...]


@dataclass(frozen=True)
class Claims:
    """The claims of one attempt of a campaign."""

    folder: Path
    attempt: int

    def state(self, key: Key) -> CellState:
        """Whether the cell can be claimed now."""
        found = leases.look(self._path(key))
        if found.held:
            return CellState.HELD
        return CellState.ENDED if self._record(found.text).ended else CellState.OPEN

    @contextmanager
    def take(self, key: Key, run: str) -> Iterator[Claim | None]:
        """Claim the cell while the block runs; None if another run holds it, or it has ended.

        When the block ends, the cell has ended; if it was interrupted, the cell is open again.
        """
        with leases.trying(self._path(key)) as lease:
            before = self._record(lease.text) if lease else _Record()
            if lease is None or before.ended:
                yield None
                return
            held = before.model_copy(update={"runs": (*before.runs, run)})
            lease.write(held.model_dump_json())
            try:
                yield Claim(dead=before.runs)
            except BaseException:
                lease.write(before.model_dump_json())
                raise
            lease.write(held.model_copy(update={"ended": True}).model_dump_json())

    def _path(self, key: Key) -> Path:
        cell, profile = key
        return CampaignLayout(folder=self.folder).profile(profile).claim(cell)

    def _record(self, text: str) -> _Record:
        """The record in a file; a new one where it is of an earlier attempt, or a crash cut it off."""
        try:
            found = _Record.model_validate_json(text)
        except ValueError:
            found = _Record()
        return found if found.attempt == self.attempt else _Record(attempt=self.attempt)
