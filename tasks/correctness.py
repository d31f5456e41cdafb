"""Stage `correctness`: the served model against the framework, layer by layer.

1. tensors: every output within the spec's tolerance of the framework's fp32 output;
2. task metric: of the framework and of the served model, through the dynamic batcher under load; both reach
   the threshold, the drop is within its bound, and a baseline of shuffled answers does not reach it; the
   metric is that of metrics.py, or a stock metric with labels or with the framework's answers;
3. invariance: a sample alone, in a batch of any size, among other neighbours and on any instance gets the
   same answer;
4. the predictions are kept, so that a metric can be computed again.

The load of the first two is the answers' own: as many clients as the online plan has at its most, but 8 to
64, send the model's samples at once, in requests of 1 to 4 (of more, where the samples are many), and every
answer is checked. The server's statistics tell which batches that made.

Random weights, and a model without a metric, have no second layer.
"""

from __future__ import annotations

import logging
from pathlib import Path

import numpy as np
from prefect import task
from prefect.cache_policies import NO_CACHE

from servegrid.campaign.layout import ProfileLayout
from servegrid.checks.invariance import prove
from servegrid.checks.predictions import CLIENTS, executed, predict
from servegrid.checks.shuffled import partners
from servegrid.checks.verdict import Correctness, MetricReference, Scores, judge, undecided
from servegrid.domain.arrays import Arrays, match, without_padding
from servegrid.domain.errors import StepError
from servegrid.domain.plugins import Plugin
from servegrid.domain.stock_metric import WITH_FRAMEWORK, class_axis, classes_of, half_of, squeezed
from servegrid.domain.tolerances import Metric
from servegrid.domain.values import ArtifactRef, Cell, Endpoint, Tensor
from servegrid.frameworks.fields import ScoreFields, StockScoreFields
from servegrid.host.environment import device_lock
from servegrid.host.stage_timer import work
from servegrid.loadgen.reference import Reference
from servegrid.sources.metric import sample_labels
from servegrid.store.build import Workplace, read_json, run_step
from servegrid.store.store import present_inputs

log = logging.getLogger("servegrid")

MOST_CLIENTS = 64
"""Threads of one process; beyond, they wait for each other."""

KEPT = 4
"""Inputs that are kept with the predictions."""


@task(task_run_name="correctness {at.cell}", cache_policy=NO_CACHE)
def correctness(
    plugin: Plugin,
    cell: Cell,
    endpoint: Endpoint,
    prepared: ArtifactRef | None,
    samples: ArtifactRef,
    reference: ArtifactRef,
    at: Workplace,
) -> Correctness:
    """Run every layer on the loaded model; raises StepError when the server or the metric fails, or a request
    takes longer than a step of the cell may (`at.timeout_s`)."""
    store, product, spec = at.site.store, cell.product, plugin.spec
    outputs, tolerances = spec.interface(product.parameters).outputs, spec.tolerances[product.precision]
    metric = None if product.random_weights else spec.variants[product.variant].metric
    clients = min(max(CLIENTS, *cell.online.concurrency), MOST_CLIENTS)
    with device_lock(at.profile, exclusive=False), work("correctness"):
        with np.load(store.path(reference) / "outputs.npz") as file:
            expected = {name: file[name] for name in file}
        before = executed(endpoint)
        log.info("%s  correctness  every sample, from %d clients at once", at.cell, clients)
        served = predict(endpoint, store.path(samples), cell.dynamic.max_batch_size, at.timeout_s, clients)
        batches = executed(endpoint) - before
        labels = _labels(plugin, metric, outputs, store.path(samples))
        folder = _keep(cell, outputs, served, expected, _to_shuffle(metric, labels, outputs, expected), at)
        _keep_inputs(folder, store.path(samples), spec.fixed_batch or min(KEPT, cell.dynamic.max_batch_size))
        inputs = present_inputs(prepared=prepared, samples=samples)
        scores = _scores(cell, metric, labels, inputs, folder, at) if metric else None
        log.info("%s  correctness  some of them alone and in other batches", at.cell)
        invariance = prove(endpoint, store.path(samples), cell.dynamic, outputs, tolerances, at.timeout_s)
    found = Correctness(
        tensors=match(outputs, served, expected, tolerances),
        scores=scores,
        invariance=invariance,
        clients=clients,
        batches=dict(sorted(batches.items())),
    )
    failures = judge(found, tolerances, metric, product.precision)
    why_not = undecided(scores, metric) if scores and metric else ""
    return found.model_copy(update={"failures": failures, "undecided": why_not})


def answers_of(plugin: Plugin, cell: Cell, reference: ArtifactRef, at: Workplace) -> Reference:
    """The answers against which the cell's deployments are checked while they are measured."""
    return Reference(
        answers=at.site.store.path(reference) / "outputs.npz",
        outputs=plugin.spec.interface(cell.product.parameters).outputs,
        tolerances=plugin.spec.tolerances[cell.product.precision],
    )


def _labels(plugin: Plugin, metric: Metric | None, outputs: tuple[Tensor, ...], samples: Path) -> Arrays:
    """The labels of the samples by output: of the stock metric's file, or those of dataloader.py."""
    with np.load(samples / "samples.npz") as file:
        found = {name.removeprefix("y/"): file[name] for name in file if name.startswith("y/")}
        count = len(file["ids"])
    if metric and metric.output:
        output = next(tensor for tensor in outputs if tensor.name == metric.output)
        given = sample_labels(plugin, metric, output, count)
        return found if given is None else {metric.output: given}
    return found


def _to_shuffle(
    metric: Metric | None, labels: Arrays, outputs: tuple[Tensor, ...], expected: Arrays
) -> Arrays:
    """What must differ between a sample and the one whose answer it gets: the label, or, where there is none,
    the framework's answer."""
    if metric and metric.output and (metric.name in WITH_FRAMEWORK or not labels):
        answers = expected[metric.output].reshape(squeezed(expected[metric.output].shape))
        if metric.name == "agreement":
            answers = classes_of(answers, class_axis(answers.shape, None), half_of(answers))
        return {metric.output: answers}
    return labels or {t.name: without_padding(t, expected[t.name]) for t in outputs}


def _keep(
    cell: Cell, outputs: tuple[Tensor, ...], served: Arrays, expected: Arrays, labels: Arrays, at: Workplace
) -> Path:
    """Write the framework's, the served and the shuffled predictions below the campaign, without padding.
    There are no shuffled ones where all samples have one label."""
    folder = ProfileLayout(folder=at.logs.parent).predictions(cell.name)
    folder.mkdir(parents=True, exist_ok=True)
    framework, answers = (
        {t.name: without_padding(t, found[t.name]) for t in outputs} for found in (expected, served)
    )
    np.savez(folder / "framework.npz", allow_pickle=False, **framework)
    np.savez(folder / "served.npz", allow_pickle=False, **answers)
    (folder / "shuffled.npz").unlink(missing_ok=True)
    others = partners(labels)
    if others is not None:
        shuffled = {name: array[others] for name, array in answers.items()}
        np.savez(folder / "shuffled.npz", allow_pickle=False, **shuffled)
    return folder


def _keep_inputs(folder: Path, samples: Path, count: int) -> None:
    """Write the inputs of the first predictions: one request that can be sent again."""
    with np.load(samples / "samples.npz") as file:
        inputs = {name.removeprefix("x/"): file[name][:count] for name in file if name.startswith("x/")}
    np.savez(folder / "inputs.npz", allow_pickle=False, **inputs)


def _scores(
    cell: Cell, metric: Metric, labels: Arrays, inputs: dict[str, ArtifactRef], folder: Path, at: Workplace
) -> Scores:
    """The metrics of the kept predictions: the plug-in's, or a stock metric."""
    names = ("framework", "served", *(["shuffled"] if (folder / "shuffled.npz").exists() else []))
    files = {name: folder / f"{name}.npz" for name in names}
    reference: MetricReference = "metrics.py"
    if metric.output is None:
        fields = ScoreFields(parameters=cell.product.parameters, predictions=names)
        run_step("score", fields=fields, inputs=inputs, output=folder, at=at, files=files)
    else:
        reference = "framework" if metric.name in WITH_FRAMEWORK else "labels"
        if reference == "labels" and metric.output in labels:
            files["labels"] = folder / "labels.npz"
            np.savez(files["labels"], allow_pickle=False, labels=labels[metric.output])
        stock = StockScoreFields(
            metric=metric.name,
            output=metric.output,
            predictions=names,
            permuted=metric.threshold is None,
        )
        run_step("stock_score", fields=stock, inputs={}, output=folder, at=at, files=files)
    metrics: dict[str, dict[str, float]] = read_json(folder / "metrics.json")
    if metric.name not in metrics["served"]:
        known = ", ".join(metrics["served"])
        raise StepError(f"metrics.py gives no {metric.name!r}, which model.yaml names; it gives: {known}")
    framework, served = (metrics[name][metric.name] for name in ("framework", "served"))
    return Scores(
        metric=metric.name,
        framework=framework,
        served=served,
        shuffled=metrics["shuffled"][metric.name] if "shuffled" in names else None,
        drop=metric.lost(framework, served),
        all=metrics["served"],
        reference=reference,
        permuted=metrics["permuted"][metric.name] if "permuted" in metrics else None,
    )
