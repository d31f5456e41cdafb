"""What the conversion to `aoti` reads."""

from __future__ import annotations

from servegrid.domain.values import Value
from servegrid.formats.fields import ConvertFields
from servegrid.store.job import Job


class Machine(Value):
    """The machine that a package is compiled for."""

    instruction_sets: tuple[str, ...]


class AotiFields(ConvertFields):
    """The machine that may run the package."""

    machine: Machine


AotiJob = Job[AotiFields]
