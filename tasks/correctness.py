"""Stage `correctness`: the served model against the framework, layer by layer.

1. tensors: every output within the spec's tolerance of the framework's fp32 output;
2. task metric: of the framework and of the served model, through the dynamic batcher under load; both reach
   the threshold, the drop is within its bound, and a baseline of shuffled answers does not reach it;
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
from servegrid.checks.verdict import Correctness, Scores, judge
from servegrid.domain.arrays import Arrays, match, without_padding
from servegrid.domain.errors import StepError
from servegrid.domain.plugins import Plugin
from servegrid.domain.tolerances import Metric
from servegrid.domain.values import ArtifactRef, Cell, Endpoint, Tensor, Value
from servegrid.frameworks.fields import ScoreFields
from servegrid.host.environment import device_lock
from servegrid.host.stage_timer import work
from servegrid.loadgen.reference import Reference
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
        folder = _keep(cell, outputs, expected, converted, served, samples, at)
        _keep_samples(
            folder, samples, spec.fixed_batch or min(KEPT, cell.dynamic.max_batch_size), keep_inputs
        )
        inputs = present_inputs(prepared=proofs.prepared, samples=proofs.samples)
        scores = _scores(cell, metric, inputs, folder, at) if metric else None
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
    return found.model_copy(update={"failures": failures})


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


def _keep(
    cell: Cell,
    outputs: tuple[Tensor, ...],
    expected: Arrays,
    converted: Arrays | None,
    served: Arrays,
    samples: Path,
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

    framework, answers = keep("framework", expected), keep("served", served)
    if converted:
        keep("converted", converted)
    with np.load(samples / "samples.npz") as file:
        labels = {name: file[name] for name in file if name.startswith("y/")} or framework
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
    cell: Cell, metric: Metric, inputs: dict[str, ArtifactRef], folder: Path, at: Workplace
) -> Scores:
    """The plug-in's metrics of the kept predictions."""
    names = tuple(name for name in PREDICTIONS if (folder / f"{name}.npz").exists())
    run_step(
        "score",
        fields=ScoreFields(parameters=cell.product.parameters, predictions=names),
        inputs=inputs,
        output=folder,
        at=at,
        files={name: folder / f"{name}.npz" for name in names},
    )
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
    )
