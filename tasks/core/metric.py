"""The task metric of a variant."""

from __future__ import annotations

from typing import Literal

from tasks.core.values import Precision, Value


class Metric(Value):
    """The task metric. `drop` bounds by how much the served model may be worse than the framework."""

    name: str
    better: Literal["higher", "lower"] = "higher"
    threshold: float
    drop: dict[Precision, float]

    def reached(self, value: float) -> bool:
        """Whether a value is at the threshold or better; NaN never is."""
        return value >= self.threshold if self.better == "higher" else value <= self.threshold

    def lost(self, framework: float, served: float) -> float:
        """By how much the served model is worse."""
        return framework - served if self.better == "higher" else served - framework
