"""A service-level objective on latency, written as `p99=50ms`."""

from __future__ import annotations

import math
import re
from decimal import Decimal
from typing import Any, Literal

from pydantic import BaseModel, model_serializer, model_validator
from pydantic_core import CoreSchema

from servegrid.domain.errors import UserError

Statistic = Literal["p50", "p90", "p95", "p99", "avg"]
UNITS_MS = {"us": 1e-3, "ms": 1.0, "s": 1e3}
FORM = re.compile(r"(p50|p90|p95|p99|avg)=(\d+(?:\.\d+)?)(us|ms|s)")


class Slo(BaseModel, frozen=True, extra="forbid"):
    """A statistic of the latency and its upper limit in ms; validated from text, and serialized as text."""

    statistic: Statistic
    limit_ms: float

    @model_validator(mode="before")
    @classmethod
    def _from_text(cls, given: Any) -> Any:
        return _parts(given) if isinstance(given, str) else given

    @model_serializer
    def _as_text(self) -> str:
        return str(self)

    def __str__(self) -> str:
        # Every digit and no exponent, so that the text can be parsed again.
        return f"{self.statistic}={Decimal(repr(self.limit_ms)).normalize():f}ms"

    @classmethod
    def __get_pydantic_json_schema__(cls, schema: CoreSchema, handler: Any) -> dict[str, Any]:
        return {"type": "string", "pattern": f"^{FORM.pattern}$"}

    @property
    def column(self) -> str:
        """The statistic's column in measurements and rows."""
        return f"{self.statistic}_ms"


def parse(text: str) -> Slo:
    """The objective in `text`.

    Raises:
        ValueError: the text has another form; the message shows the right one.
    """
    return Slo.model_validate(_parts(text))


def from_option(text: str) -> Slo:
    """The objective of `--slo TEXT`.

    Raises:
        UserError: the text has another form.
    """
    try:
        return parse(text)
    except ValueError as error:
        raise UserError(f"--slo {text!r}: {error}") from error


def _parts(text: str) -> dict[str, Any]:
    found = FORM.fullmatch(text.strip())
    limit_ms = float(found[2]) * UNITS_MS[found[3]] if found else 0.0
    if not found or not 0 < limit_ms < math.inf:
        raise ValueError("write a statistic (p50, p90, p95, p99, avg) and a time above 0: p99=50ms, avg=0.2s")
    return {"statistic": found[1], "limit_ms": limit_ms}
