"""What the layers of correctness found, and which bounds do not hold."""

from __future__ import annotations

import math
from typing import Literal

from servegrid.checks.invariance import Invariance
from servegrid.domain.arrays import TensorMatch
from servegrid.domain.tolerances import Metric, Tolerances
from servegrid.domain.values import Precision, Value

MetricReference = Literal["metrics.py", "labels", "framework"]


class Scores(Value):
    """The task metric of the framework, of the converted model without a server (null: not run here), of the
    served model, of a shuffled baseline (null: all samples have one label); `all` the metrics of the served
    model. `drop` is by how much the served model is worse than the framework. `reference` is what the answers
    were compared with; `permuted` the framework's best score with answers in random orders, which is computed
    where no threshold is given."""

    metric: str
    framework: float
    converted: float | None = None
    served: float
    shuffled: float | None
    drop: float
    all: dict[str, float]
    reference: MetricReference = "metrics.py"
    permuted: float | None = None


class Correctness(Value):
    """What the layers found; `failures` is empty when the cell is correct. `converted` are the tensors of
    the converted model without a server, where it was run. `clients` sent the samples at once, and the server
    executed `batches`: how many of each size. `undecided`: why a stock metric cannot tell right answers from
    wrong ones; the cell does not pass then."""

    converted: tuple[TensorMatch, ...] = ()
    tensors: tuple[TensorMatch, ...]
    scores: Scores | None
    invariance: Invariance
    clients: int
    batches: dict[int, int]
    failures: tuple[str, ...] = ()
    undecided: str = ""

    @property
    def unproven(self) -> str:
        """What the data cannot prove, in words; empty where it proves all."""
        if self.scores is None or self.scores.shuffled is not None:
            return ""
        return (
            f"all samples have one label, so that {self.scores.metric} does not show whether answers depend "
            "on the input: give samples with several labels"
        )


def judge(
    found: Correctness, tolerances: Tolerances, metric: Metric | None, precision: Precision
) -> tuple[str, ...]:
    """Every bound that does not hold, with the layer's name and the figures."""
    failures = [
        f"the converted model, before it is served: tensor {why}"
        for t in found.converted
        for why in t.failures(tolerances.of(t.output))
    ]
    failures += [f"tensor {why}" for t in found.tensors for why in t.failures(tolerances.of(t.output))]
    failures += [
        f"tensor {t.output}: none of its values is finite" for t in found.tensors if t.not_finite == 1
    ]
    if metric and found.scores and not undecided(found.scores, metric):
        failures += _judge_metric(found.scores, _with_threshold(metric, found.scores), metric.drop[precision])
    return (*failures, *found.invariance.failures(tolerances))


def undecided(scores: Scores, metric: Metric) -> str:
    """Why a stock metric decides nothing, in words; empty where it decides, and for metrics.py's."""
    if metric.output is None:
        return ""
    if metric.made_up:
        return f"{metric.name} was computed on random samples and decides nothing: give --samples"
    if scores.shuffled is None:
        return f"all samples have one label, so that {metric.name} does not show if answers depend on inputs"
    if scores.permuted is not None and not scores.framework > scores.permuted:
        return (
            f"{metric.name} of the framework, {scores.framework:.4f}, is no better than of its answers in "
            f"random orders, {scores.permuted:.4f}: give more samples, or --threshold"
        )
    bound = _with_threshold(metric, scores)
    if bound.reached(scores.shuffled):
        return (
            f"{metric.name} of a baseline of shuffled answers is {scores.shuffled:.4f}: a threshold of "
            f"{bound.threshold:g} decides nothing"
        )
    return ""


def _with_threshold(metric: Metric, scores: Scores) -> Metric:
    """The metric with its threshold, or one just above the score of permuted answers."""
    if metric.threshold is not None:
        return metric
    assert scores.permuted is not None
    return metric.model_copy(update={"threshold": math.nextafter(scores.permuted, math.inf)})


def _judge_metric(scores: Scores, metric: Metric, allowed: float) -> list[str]:
    bound = f"at {'least' if metric.better == 'higher' else 'most'} {metric.threshold:g}"
    values = {"framework": scores.framework, "served model": scores.served}
    if scores.converted is not None:
        values["converted model, before it is served"] = scores.converted
    failures = [
        f"{metric.name} of the {name}: {value:.4f}, {bound} wanted"
        for name, value in values.items()
        if not metric.reached(value)
    ]
    for name, value in values.items():
        drop = metric.lost(scores.framework, value)
        if not drop <= allowed:
            failures.append(f"{metric.name} drop of the {name}: {drop:.4f}, {allowed:g} allowed")
    if scores.shuffled is not None and metric.reached(scores.shuffled):
        failures.append(
            f"{metric.name} of a baseline of shuffled answers: {scores.shuffled:.4f}; a threshold of "
            f"{metric.threshold:g} proves nothing"
        )
    return failures
