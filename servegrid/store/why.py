"""Why a build stage would be taken from the store, or built: its request against those of what is kept."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

from servegrid.domain.values import ArtifactRef, Value
from servegrid.store.store import BuildRequest, Store

UNKNOWN = ArtifactRef(digest="not built yet", path="", size=0)
"""Stands for an input of a request that has to be built before its digest is known."""

ABSENT = "absent"


class Difference(Value):
    """One field that differs: its path in the request, and both values as they are shown."""

    field: str
    stored: str
    present: str


class Reason(Value):
    """What would become of one stage: taken from the store, or built, or only its inputs can tell.

    `made_for`: the cell of another model or variant whose artifact it is; `differences` are to the nearest of
    what the store keeps of this stage, `waits_for` the inputs that are not built yet.
    """

    stage: str
    stored: bool = False
    damaged: bool = False
    made_for: str = ""
    nearest: str | None = None
    waits_for: tuple[str, ...] = ()
    differences: tuple[Difference, ...] = ()

    @property
    def lines(self) -> tuple[str, ...]:
        """What is said of it."""
        if self.stored:
            return (f"{self.stage}: stored{self.made_for and f' (made for {self.made_for})'}",)
        if self.damaged:
            return (f"{self.stage}: built again; its artifact is damaged or gone",)
        waits = f"its {' and '.join(self.waits_for)}" if self.waits_for else ""
        if self.nearest is None:
            return (f"{self.stage}: built; the store keeps none of this model and variant",)
        if not self.differences:
            return (f"{self.stage}: built, unless {waits} comes out as it was",)
        changed = (f"  {d.field}: {d.stored} -> {d.present}" for d in self.differences)
        after = f", after {waits}" if waits else ""
        return (f"{self.stage}: built{after}, for this differs from what is stored:", *changed)


def explain(request: BuildRequest, store: Store, kin: str) -> Reason:
    """Why `request` would be built; compared with what was kept for cells whose names begin with `kin`.

    The nearest has the fewest differing fields; of several the latest.
    """
    waits_for = tuple(name for name, ref in request.inputs.items() if ref == UNKNOWN)
    if store.known(request.key):
        intact = store.find(request.key) is not None
        made_for = store.made_for(request.key)
        other = "" if made_for.startswith(kin) else made_for
        return Reason(stage=request.stage, stored=intact, damaged=not intact, made_for=other)
    candidates = [
        (differences(entry.request, request.document(), without=waits_for), entry.cell)
        for entry in store.entries()
        if entry.request["stage"] == request.stage and entry.cell.startswith(kin)
    ]
    found, cell = min(candidates, key=lambda candidate: len(candidate[0]), default=((), None))
    return Reason(stage=request.stage, nearest=cell, waits_for=waits_for, differences=found)


def differences(
    stored: dict[str, Any], present: dict[str, Any], *, without: tuple[str, ...] = ()
) -> tuple[Difference, ...]:
    """The fields in which two documents of requests differ, but for these inputs.

    An axis of the interface that follows a parameter is not told beside it.
    """
    old, new = dict(_leaves(stored)), dict(_leaves(present))
    skipped = {f"inputs.{name}" for name in without}
    found = tuple(
        Difference(field=field, stored=_shown(old, field), present=_shown(new, field))
        for field in dict.fromkeys([*new, *old])
        if field not in skipped and old.get(field, ABSENT) != new.get(field, ABSENT)
    )
    changes = {(d.stored, d.present) for d in found if d.field.startswith("fields.parameters.")}
    axis = re.compile(r"fields\.interface\..*\.shape\[\d+\]")
    return tuple(d for d in found if not (axis.fullmatch(d.field) and (d.stored, d.present) in changes))


def _leaves(value: Any, path: str = "") -> Iterator[tuple[str, str]]:
    """Path -> JSON of everything in a document that holds nothing else."""
    if isinstance(value, dict) and value:
        for key, entry in value.items():
            yield from _leaves(entry, f"{path}.{key}" if path else key)
    elif isinstance(value, list) and value:
        for position, entry in enumerate(value):
            yield from _leaves(entry, f"{path}[{position}]")
    else:
        yield path, json.dumps(value)


def _shown(leaves: dict[str, str], field: str) -> str:
    """A value as it is told; of a digest its beginning."""
    text = leaves.get(field, ABSENT).strip('"')
    return text[:12] if re.fullmatch(r"[0-9a-f]{64}", text) else text
