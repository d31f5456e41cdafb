"""A service-level objective on latency, as a user writes it: `p99=50ms`."""

from __future__ import annotations

import math
import re
from typing import Literal

from servegrid.domain.errors import UserError
from servegrid.domain.values import Value

Statistic = Literal["p50", "p90", "p95", "p99", "avg"]
UNITS_MS = {"us": 1e-3, "ms": 1.0, "s": 1e3}
FORM = re.compile(r"(p50|p90|p95|p99|avg)=(\d+(?:\.\d+)?)(us|ms|s)")


class Slo(Value):
    """A statistic of the latency, and the most that it may be, in ms."""

    statistic: Statistic
    limit_ms: float

    @property
    def column(self) -> str:
        """The statistic as measurements and rows name it."""
        return f"{self.statistic}_ms"

    def __str__(self) -> str:
        return f"{self.statistic}={self.limit_ms:g}ms"


def parse(text: str) -> Slo:
    """What `text` says.

    Raises:
        ValueError: it is not of the form; says what is.
    """
    found = FORM.fullmatch(text.strip())
    limit_ms = float(found[2]) * UNITS_MS[found[3]] if found else 0.0
    if not found or not 0 < limit_ms < math.inf:
        raise ValueError("write a statistic (p50, p90, p95, p99, avg) and a time above 0: p99=50ms, avg=0.2s")
    return Slo.model_validate({"statistic": found[1], "limit_ms": limit_ms})


def from_option(text: str) -> Slo:
    """What `--slo TEXT` says.

    Raises:
        UserError: it is not of the form.
    """
    try:
        return parse(text)
    except ValueError as error:
        raise UserError(f"--slo {text!r}: {error}") from error
