"""What conversions read: the fields that several formats share."""

from __future__ import annotations

from pydantic import PositiveInt

from servegrid.domain.conversion import ShapeRange
from servegrid.domain.tolerances import Tolerances
from servegrid.domain.values import Precision, Value
from servegrid.store.job import Fields, Job


class ConvertFields(Fields):
    """The precision to convert to, and how far that may move the outputs."""

    precision: Precision
    tolerances: Tolerances


class Card(Value):
    """The NVIDIA card of this host; without fields where there is none."""

    compute_capability: str | None = None
    driver: str | None = None


class EngineFields(ConvertFields):
    """What engines of TensorRT depend on: the shapes of the inputs, the workspace limit and the card."""

    shapes: dict[str, ShapeRange]
    workspace_bytes: PositiveInt | None
    card: Card


ConvertJob = Job[ConvertFields]
EngineJob = Job[EngineFields]
