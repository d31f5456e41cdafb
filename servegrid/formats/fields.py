"""What conversions read: the fields that several formats share; and what running a converted model reads."""

from __future__ import annotations

from typing import Literal

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


class ConvertedAnswersFields(Fields):
    """The folder of the session that runs the converted model, its device, the batch size of a call."""

    session: str
    device: Literal["cpu", "gpu"]
    batch_size: int


ConvertJob = Job[ConvertFields]
EngineJob = Job[EngineFields]
ConvertedAnswersJob = Job[ConvertedAnswersFields]
