"""What a cell's next run would find in the store, and how long it would take."""

from __future__ import annotations

from collections.abc import Sequence

from servegrid.domain.values import Cell, Value
from servegrid.store.store import BuildRequest, Store
from servegrid.store.why import Reason, explain


class Expected(Value):
    """The build stages of a cell's next run, by whether the store has them; and the time of its last run.

    `missing` is the reason why the stages are unknown.
    """

    stored: tuple[str, ...] = ()
    to_build: tuple[str, ...] = ()
    missing: str = ""
    wall_s: float | None = None

    @property
    def line(self) -> str:
        """The stages in one line."""
        if self.missing:
            return self.missing
        total = len(self.stored) + len(self.to_build)
        built = f"; builds {', '.join(self.to_build)}" if self.to_build else ""
        return f"{len(self.stored)} of {total} stages{built}"


def expect(requests: Sequence[BuildRequest], store: Store, wall_s: float | None) -> Expected:
    """The forecast for a cell with these build requests, whose last run took `wall_s`.

    A stage whose inputs have to be built counts as one to build.
    """
    found = [(entry.stage, store.known(entry.key)) for entry in requests]
    return Expected(
        stored=tuple(stage for stage, artifact in found if artifact),
        to_build=tuple(stage for stage, artifact in found if not artifact),
        wall_s=wall_s,
    )


def why(cell: Cell, requests: Sequence[BuildRequest], store: Store) -> tuple[Reason, ...]:
    """For each build stage of the cell, why it would be built or not."""
    kin = f"{cell.product.model}-{cell.product.variant}-"
    return tuple(explain(request, store, kin) for request in requests)


def summary(times: Sequence[float | None]) -> str:
    """The number of cells, the seconds of those with a last time, and the number of those without."""
    known = [seconds for seconds in times if seconds is not None]
    parts = [f"{len(times)} cell{'' if len(times) == 1 else 's'}"]
    if known:
        parts.append(f"expected: {sum(known):.0f} s")
    if len(known) < len(times):
        parts.append(f"{len(times) - len(known)} never run before")
    return "; ".join(parts)
