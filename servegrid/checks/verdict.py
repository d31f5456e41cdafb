"""What the layers of correctness found, and which bounds do not hold."""

from __future__ import annotations

from servegrid.checks.invariance import Invariance
from servegrid.domain.arrays import TensorMatch
from servegrid.domain.tolerances import Metric, Tolerances
from servegrid.domain.values import Precision, Value


class Scores(Value):
    """The task metric of the framework, of the converted model without a server (null: not run here), of the
    served model, of a shuffled baseline (null: all samples have one label); `all` the metrics of the served
    model. `drop` is by how much the served model is worse than the framework."""

    metric: str
    framework: float
    converted: float | None = None
    served: float
    shuffled: float | None
    drop: float
    all: dict[str, float]


class Correctness(Value):
    """What the layers found; `failures` is empty when the cell is correct. `converted` are the tensors of
    the converted model without a server, where it was run. `clients` sent the samples at once, and the server
    executed `batches`: how many of each size."""

    converted: tuple[TensorMatch, ...] = ()
    tensors: tuple[TensorMatch, ...]
    scores: Scores | None
    invariance: Invariance
    clients: int
    batches: dict[int, int]
    failures: tuple[str, ...] = ()

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
    if metric and found.scores:
        failures += _judge_metric(found.scores, metric, metric.drop[precision])
    return (*failures, *found.invariance.failures(tolerances))


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
