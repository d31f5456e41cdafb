"""Stage `correctness`: the served model against the framework, layer by layer.

1. tensors: every output within the spec's tolerance of the framework's fp32 output;
2. task metric: of the framework and of the served model, through the dynamic batcher; both above the
   threshold, the drop within its bound, and an input-blind baseline below the threshold;
3. invariance: a sample alone, in a full batch and among other neighbours gets the same answer;
4. the predictions are kept, so that a metric can be computed again.
"""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
from prefect import task
from prefect.cache_policies import NO_CACHE

from tasks.core.build import Workplace, read_json, run_step
from tasks.core.clock import work
from tasks.core.environment import device_lock
from tasks.core.errors import StepError
from tasks.core.plugins import Plugin
from tasks.core.spec import Metric, Tolerance
from tasks.core.values import ArtifactRef, Cell, Endpoint, Precision, Value
from tasks.loadgen.requests import Array, Arrays
from tasks.predictions import invariance, predict


class TensorMatch(Value):
    """One output against the framework's: largest absolute difference, least cosine of a sample."""

    output: str
    largest_difference: float
    least_cosine: float


class Correctness(Value):
    """What the four layers found. `metrics` are all of the served model's; `failures` is empty when the
    cell is correct."""

    tensors: tuple[TensorMatch, ...]
    metric: str
    framework: float
    served: float
    blind: float
    metrics: dict[str, float]
    invariance: float
    failures: tuple[str, ...]

    @property
    def drop(self) -> float:
        return self.framework - self.served


@task(task_run_name="correctness {at.cell}", cache_policy=NO_CACHE)
def correctness(
    plugin: Plugin,
    cell: Cell,
    endpoint: Endpoint,
    prepared: ArtifactRef,
    samples: ArtifactRef,
    reference: ArtifactRef,
    at: Workplace,
) -> Correctness:
    """Run every layer on the loaded model; raises StepError when the server or the metric fails."""
    store, precision = at.site.store, cell.product.precision
    metric = plugin.spec.variants[cell.product.variant].metric
    with device_lock(at.profile, exclusive=False), work("correctness"):
        with np.load(store.path(reference) / "outputs.npz") as file:
            expected = {name: file[name] for name in file}
        served = predict(endpoint, store.path(samples), cell.dynamic.max_batch_size)
        tensors = tuple(match(name, served[name], expected[name]) for name in expected)
        scores = _scores(cell, served, expected, {"prepared": prepared, "samples": samples}, at)
        moved = invariance(endpoint, store.path(samples), cell.dynamic.max_batch_size)
    if metric.name not in scores["served"]:
        known = ", ".join(scores["served"])
        raise StepError(f"metrics.py gives no {metric.name!r}, which model.yaml names; it gives: {known}")
    framework, by_server, blind = (scores[s][metric.name] for s in ("framework", "served", "blind"))
    found = Correctness(
        tensors=tensors,
        metric=metric.name,
        framework=framework,
        served=by_server,
        blind=blind,
        metrics=scores["served"],
        invariance=moved,
        failures=(),
    )
    failures = judge(found, plugin.spec.tolerances[precision], metric, precision)
    return found.model_copy(update={"failures": failures})


def match(name: str, served: Array, expected: Array) -> TensorMatch:
    """Compare one output; NaN or infinite values make it infinitely different."""
    if served.shape != expected.shape or not np.isfinite(served).all():
        return TensorMatch(output=name, largest_difference=math.inf, least_cosine=-1.0)
    have = served.astype(np.float64).reshape(len(served), -1)
    want = expected.astype(np.float64).reshape(len(expected), -1)
    norms = np.linalg.norm(have, axis=1) * np.linalg.norm(want, axis=1)
    same = (have == want).all(axis=1)  # two samples of zeros are alike; zeros and a sample are not
    cosines = np.where(norms > 0, (have * want).sum(axis=1) / np.where(norms > 0, norms, 1), same)
    return TensorMatch(
        output=name,
        largest_difference=float(np.abs(have - want).max(initial=0.0)),
        least_cosine=float(cosines.min(initial=1.0)),
    )


def judge(found: Correctness, tolerance: Tolerance, metric: Metric, precision: Precision) -> tuple[str, ...]:
    """Every bound that does not hold, with its figures."""
    failures = []
    for entry in found.tensors:
        if not entry.largest_difference <= tolerance.absolute:
            failures.append(
                f"tensor {entry.output}: {entry.largest_difference:.3g} off, {tolerance.absolute:g} allowed"
            )
        if not entry.least_cosine >= tolerance.cosine:
            failures.append(
                f"tensor {entry.output}: cosine {entry.least_cosine:.6f}, {tolerance.cosine:g} wanted"
            )
    for name, value in (("framework", found.framework), ("served model", found.served)):
        if not value >= metric.threshold:
            failures.append(f"{metric.name} of the {name}: {value:.4f}, at least {metric.threshold:g} wanted")
    if not found.drop <= metric.drop[precision]:
        failures.append(
            f"{metric.name} drop: {found.drop:.4f}, {metric.drop[precision]:g} allowed for {precision}"
        )
    if not found.blind < metric.threshold:
        failures.append(
            f"{metric.name} of an input-blind baseline: {found.blind:.4f}; a threshold of "
            f"{metric.threshold:g} proves nothing"
        )
    if not found.invariance <= tolerance.absolute:
        failures.append(
            f"invariance: an answer moved by {found.invariance:.3g} with its neighbours in the batch, "
            f"{tolerance.absolute:g} allowed"
        )
    return tuple(failures)


def _scores(
    cell: Cell, served: Arrays, expected: Arrays, inputs: dict[str, ArtifactRef], at: Workplace
) -> dict[str, dict[str, float]]:
    """The plug-in's metrics of framework, served model, and a baseline blind to its input.

    Blind: the served answers, each given to the next sample; right only as often as an answer
    that does not depend on the question is.
    """
    folder = at.logs.parent / "predictions" / cell.name
    folder.mkdir(parents=True, exist_ok=True)
    blind = {name: np.roll(array, 1, axis=0) for name, array in served.items()}
    files: dict[str, Path] = {}
    for name, outputs in (("framework", expected), ("served", served), ("blind", blind)):
        files[name] = folder / f"{name}.npz"
        np.savez(files[name], allow_pickle=False, **outputs)
    run_step(
        "score",
        fields={"parameters": cell.product.parameters, "predictions": list(files)},
        inputs=inputs,
        output=folder,
        at=at,
        files=files,
    )
    scores: dict[str, dict[str, float]] = read_json(folder / "metrics.json")
    return scores
