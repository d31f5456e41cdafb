"""How far an answer may be off: tolerances of the outputs, and the task metric of a variant."""

from __future__ import annotations

from typing import Literal

from pydantic import Field, model_validator

from servegrid.domain.names import Finite, NotNegative, Positive, Share, Text
from servegrid.domain.values import Precision, Value


class Metric(Value):
    """The task metric. `drop` bounds by how much the served model may be worse than the framework.

    With an `output` it is a stock metric of that output: one of scikit-learn's scorers or of our own, by its
    name. Its labels are in the file `labels`, which lies in the model's folder or has an absolute path;
    without one dataloader.py gives them. `agreement` and `cosine` compare with the framework's answers
    instead. Without a threshold, the framework must be better than with permuted answers. `made_up`: the
    samples are random, so the metric decides nothing.
    """

    name: Text
    better: Literal["higher", "lower"] = "higher"
    threshold: Finite | None = None
    drop: dict[Precision, NotNegative]
    output: Text | None = None
    labels: Text | None = None
    made_up: bool = False

    @model_validator(mode="after")
    def _is_stock_or_has_a_threshold(self) -> Metric:
        if self.output is None:
            if self.threshold is None:
                raise ValueError("threshold: missing; only a metric with an `output` can do without")
            if self.labels is not None or self.made_up:
                raise ValueError("output: missing; `labels` and `made_up` go with it")
        return self

    def reached(self, value: float) -> bool:
        """Whether a value is at the threshold or better; NaN never is."""
        assert self.threshold is not None
        return value >= self.threshold if self.better == "higher" else value <= self.threshold

    def lost(self, framework: float, served: float) -> float:
        """By how much the served model is worse."""
        return framework - served if self.better == "higher" else served - framework


class Tolerance(Value):
    """How far an output may be from the framework's fp32 output.

    A float output: |difference| <= absolute + relative x |framework's| everywhere, and the cosine of
    every sample. An integer output: the share of its values that must be equal.
    """

    absolute: Positive
    relative: NotNegative = 0.0
    cosine: Share
    agreement: Share = 1.0


class Tolerances(Tolerance):
    """The tolerance of a precision, and of those outputs that have one of their own."""

    outputs: dict[str, Tolerance] = Field({})

    def of(self, output: str) -> Tolerance:
        return self.outputs.get(output, self)


class ConversionTolerance(Value):
    """A bound of the conversion alone: |difference| <= absolute + relative x |export's|."""

    absolute: Positive
    relative: NotNegative

    def tighten(self, tolerance: Tolerance) -> dict[str, float]:
        """The smaller of each of its bounds and of the tolerance's."""
        return {
            "absolute": min(self.absolute, tolerance.absolute),
            "relative": min(self.relative, tolerance.relative),
        }
