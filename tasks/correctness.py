"""Stage `correctness`: the served model against the framework, layer by layer.

1. tensors: every output within the spec's tolerance of the framework's fp32 output;
2. task metric: of the framework and of the served model, through the dynamic batcher under load; both reach
   the threshold, the drop is within its bound, and a baseline of shuffled answers does not reach it; the
   metric is that of metrics.py, or a stock metric with labels or with the framework's answers;
   the first two also of the converted model without a server, where this environment can run it;
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
import shutil
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
from servegrid.domain.tolerances import Metric
from servegrid.domain.values import ArtifactRef, Cell, Endpoint, Tensor, Value
from servegrid.frameworks.fields import ScoreFields, StockScoreFields
from servegrid.frameworks.metric_kinds import WITH_FRAMEWORK, class_axis, classes_of, half_of, squeezed
from servegrid.host.device_locks import device_lock
from servegrid.host.stage_timer import work
from servegrid.loadgen.reference import Reference
from servegrid.sources.metric import sample_labels
from servegrid.store.build import Workplace, read_json, run_step
from servegrid.store.store import present_inputs

log = logging.getLogger("servegrid")

MOST_CLIENTS = 64
"""Threads of one process; beyond, they wait for each other."""

PREDICTIONS = ("framework", "converted", "served", "shuffled")
"""Files of a cell's predictions."""
KEPT = 4
"""Inputs that are kept with the predictions."""


class Proofs(Value):
    """The artifacts by which answers are judged; null: without them, or not computed here."""

    prepared: ArtifactRef | None
    samples: ArtifactRef
    reference: ArtifactRef
    converted_answers: ArtifactRef | None


@task(task_run_name="correctness {at.cell}", cache_policy=NO_CACHE)
def correctness(
    plugin: Plugin,
    cell: Cell,
    endpoint: Endpoint,
    proofs: Proofs,
    at: Workplace,
    *,
    keep_inputs: bool = False,
) -> Correctness:
    """Run every layer on the loaded model; raises StepError when the server or the metric fails, or a request
    takes longer than a step of the cell may (`at.timeout_s`)."""
    store, product, spec = at.site.store, cell.product, plugin.spec
    outputs, tolerances = spec.interface(product.parameters).outputs, spec.tolerances[product.precision]
    metric = None if product.random_weights else spec.variants[product.variant].metric
    samples = store.path(proofs.samples)
    clients = min(max(CLIENTS, *cell.online.concurrency), MOST_CLIENTS)
    with device_lock(at.profile, exclusive=False), work("correctness"):
        expected = _outputs(proofs.reference, at)
        converted = _outputs(proofs.converted_answers, at) if proofs.converted_answers else None
        before = executed(endpoint)
        log.info("%s  correctness  every sample, from %d clients at once", at.cell, clients)
        served = predict(endpoint, samples, cell.dynamic.max_batch_size, at.timeout_s, clients)
        batches = executed(endpoint) - before
        labels = _labels(plugin, metric, outputs, samples)
        to_shuffle = _to_shuffle(metric, labels, outputs, expected)
        folder = _keep(cell, outputs, expected, converted, served, to_shuffle, at)
        first = spec.fixed_batch or min(KEPT, cell.dynamic.max_batch_size)
        _keep_samples(folder, samples, first, keep_inputs)
        inputs = present_inputs(prepared=proofs.prepared, samples=proofs.samples)
        scores = _scores(cell, metric, labels, inputs, folder, at) if metric else None
        log.info("%s  correctness  some of them alone and in other batches", at.cell)
        invariance = prove(endpoint, samples, cell.dynamic, outputs, tolerances, at.timeout_s)
    found = Correctness(
        converted=match(outputs, converted, expected, tolerances) if converted else (),
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


def _outputs(answers: ArtifactRef, at: Workplace) -> Arrays:
    with np.load(at.site.store.path(answers) / "outputs.npz") as file:
        return {name: file[name] for name in file}


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
    cell: Cell,
    outputs: tuple[Tensor, ...],
    expected: Arrays,
    converted: Arrays | None,
    served: Arrays,
    labels: Arrays,
    at: Workplace,
) -> Path:
    """Write the predictions of the framework, the converted model, the served one and the shuffled baseline
    below the campaign, without padding. There is no baseline where all samples have one label."""
    folder = ProfileLayout(folder=at.logs.parent).predictions(cell.name)
    folder.mkdir(parents=True, exist_ok=True)
    for path in folder.glob("*.npz"):
        path.unlink()

    def keep(name: str, found: Arrays) -> Arrays:
        kept = {t.name: without_padding(t, found[t.name]) for t in outputs}
        np.savez(folder / f"{name}.npz", allow_pickle=False, **kept)
        return kept

    _, answers = keep("framework", expected), keep("served", served)
    if converted:
        keep("converted", converted)
    others = partners(labels)
    if others is not None:
        shuffled = {name: array[others] for name, array in answers.items()}
        np.savez(folder / "shuffled.npz", allow_pickle=False, **shuffled)
    return folder


def _keep_samples(folder: Path, samples: Path, count: int, every: bool) -> None:
    """Write the inputs of the first predictions, which are one request that can be sent again; ids and labels
    of all; and all samples as the model's data has them, if wanted."""
    with np.load(samples / "samples.npz") as file:
        inputs = {name.removeprefix("x/"): file[name][:count] for name in file if name.startswith("x/")}
        labels = {name: file[name] for name in file if not name.startswith("x/")}
    np.savez(folder / "inputs.npz", allow_pickle=False, **inputs)
    np.savez(folder / "labels.npz", allow_pickle=False, **labels)
    if every:
        shutil.copy(samples / "samples.npz", folder)


def _scores(
    cell: Cell, metric: Metric, labels: Arrays, inputs: dict[str, ArtifactRef], folder: Path, at: Workplace
) -> Scores:
    """The metrics of the kept predictions: the plug-in's, or a stock metric."""
    names = tuple(name for name in PREDICTIONS if (folder / f"{name}.npz").exists())
    files = {name: folder / f"{name}.npz" for name in names}
    reference: MetricReference = "metrics.py"
    if metric.output is None:
        fields = ScoreFields(parameters=cell.product.parameters, predictions=names)
        run_step("score", fields=fields, inputs=inputs, output=folder, at=at, files=files)
    else:
        reference = "framework" if metric.name in WITH_FRAMEWORK else "labels"
        if reference == "labels" and metric.output in labels:
            files["labels"] = folder / "metric_labels.npz"
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
        converted=metrics["converted"][metric.name] if "converted" in names else None,
        served=served,
        shuffled=metrics["shuffled"][metric.name] if "shuffled" in names else None,
        drop=metric.lost(framework, served),
        all=metrics["served"],
        reference=reference,
        permuted=metrics["permuted"][metric.name] if "permuted" in metrics else None,
    )
