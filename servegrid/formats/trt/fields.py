"""What the conversion to `trt` reads."""

from __future__ import annotations

from typing import Literal

from servegrid.formats.fields import EngineFields
from servegrid.store.job import Job


class TrtFields(EngineFields):
    """The library that builds the engine."""

    library: Literal["tensorrt", "tensorrt-rtx"]


TrtJob = Job[TrtFields]
