"""Why a build stage would hit or rebuild: its request compared with those in the store."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

from servegrid.domain.values import ArtifactRef, Value
from servegrid.store.store import BuildRequest, Store

UNKNOWN = ArtifactRef(digest="not built yet", path="", size=0)
"""Stands for an input that has to be built before its digest is known."""

ABSENT = "absent"

CODE = "code."
"""The beginning of the fields that hold a step's code, one a module."""


class Difference(Value):
    """One field that differs: its path in the request, and both values as they are shown."""

    field: str
    stored: str
    present: str

    @property
    def line(self) -> str:
        """The difference in words for a module of the step's code, else field and values."""
        if self.field == CODE.rstrip("."):
            return "the stored artifact was built by an earlier servegrid, which did not record its code"
        if not self.field.startswith(CODE):
            return f"{self.field}: {self.stored} -> {self.present}"
        module = self.field.removeprefix(CODE)
        if self.stored == ABSENT:
            return f"the code of this step: {module} is new in it"
        if self.present == ABSENT:
            return f"the code of this step: {module} is no longer part of it"
        return f"the code of this step: {module} has changed"


class Reason(Value):
    """Whether one stage is taken from the store or built, and why.

    made_for: the cell of another model or variant whose artifact it is; differences: to the nearest stored
    request of this stage; waits_for: inputs that are not built yet.
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
        """The reason in words: one line, then one for each difference."""
        if self.stored:
            return (f"{self.stage}: stored{self.made_for and f' (made for {self.made_for})'}",)
        if self.damaged:
            return (f"{self.stage}: built again; its artifact is damaged or missing",)
        waits = f"its {' and '.join(self.waits_for)}" if self.waits_for else ""
        if self.nearest is None:
            return (f"{self.stage}: built; the store has none of this model and variant",)
        if not self.differences:
            return (f"{self.stage}: built, unless {waits} is the same again",)
        changed = (f"  {difference.line}" for difference in self.differences)
        after = f", after {waits}" if waits else ""
        return (f"{self.stage}: built{after}; this differs from what is stored:", *changed)


def explain(request: BuildRequest, store: Store, kin: str) -> Reason:
    """Why `request` would be built, compared with the artifacts of cells whose names begin with `kin`.

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
    """The fields in which two documents of requests differ, except these inputs.

    An axis of the interface that changes with a parameter is left out. A document of an earlier servegrid
    without `code` differs in that one field, not in each module.
    """
    old, new = dict(_leaves(stored)), dict(_leaves(present))
    skipped = {f"inputs.{name}" for name in without}
    found = [
        Difference(field=field, stored=_shown(old, field), present=_shown(new, field))
        for field in dict.fromkeys([*new, *old])
        if field not in skipped and old.get(field, ABSENT) != new.get(field, ABSENT)
    ]
    if "code" not in stored and "code" in present:
        found = [d for d in found if d.field != "version" and not d.field.startswith(CODE)]
        found.append(Difference(field=CODE.rstrip("."), stored=ABSENT, present="recorded"))
    changes = {(d.stored, d.present) for d in found if d.field.startswith("fields.parameters.")}
    axis = re.compile(r"fields\.interface\..*\.shape\[\d+\]")
    return tuple(d for d in found if not (axis.fullmatch(d.field) and (d.stored, d.present) in changes))


def _leaves(value: Any, path: str = "") -> Iterator[tuple[str, str]]:
    """Path -> JSON of each value in a document that is not a filled list or mapping."""
    if isinstance(value, dict) and value:
        for key, entry in value.items():
            yield from _leaves(entry, f"{path}.{key}" if path else key)
    elif isinstance(value, list) and value:
        for position, entry in enumerate(value):
            yield from _leaves(entry, f"{path}[{position}]")
    else:
        yield path, json.dumps(value)


def _shown(leaves: dict[str, str], field: str) -> str:
    """A value as it is shown; the beginning of a digest."""
    text = leaves.get(field, ABSENT).strip('"')
    return text[:12] if re.fullmatch(r"[0-9a-f]{64}", text) else text
