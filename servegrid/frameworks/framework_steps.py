"""Steps that run the plug-in's own network: export, the reference outputs, its own latency."""

from __future__ import annotations

import importlib
import json
import time
from typing import Any, Protocol

import numpy as np

from servegrid.domain import arrays
from servegrid.domain.arrays import Arrays
from servegrid.domain.roofline import Count
from servegrid.domain.values import Interface
from servegrid.frameworks import artifacts
from servegrid.frameworks.plugin_steps import batches
from servegrid.store.build import Job

EXAMPLE_BATCH = 2

FRAMEWORKS = {
    "torch": "servegrid.frameworks.torch_network",
    "tensorflow": "servegrid.frameworks.tensorflow_network",
    "onnx": "servegrid.frameworks.onnx_file",
    "torchscript": "servegrid.frameworks.torchscript_file",
    "savedmodel": "servegrid.frameworks.savedmodel_file",
}
"""Framework -> the module that has its `load`; never both in one process."""


class Network(Protocol):
    """A plug-in's network in evaluation mode."""

    def run(self, x: Arrays) -> Arrays:
        """One call; arrays by tensor name in and out."""

    def export(self, job: Job, x: Arrays) -> None:
        """Write the wanted format, with a free batch axis, into the job's output folder."""

    def count(self, x: Arrays) -> tuple[float | None, int | None]:
        """Floating-point operations of one call, and floating-point weights; None: there is no counter."""


def export(job: Job) -> None:
    """The model file, its interface and an example."""
    interface = Interface.model_validate(job.fields["interface"])
    _, x, _ = next(batches(job, _fixed_batch(interface) or EXAMPLE_BATCH))
    artifacts.check_shapes(interface.inputs, x, "dataloader.py: get_dataloader_fn")
    network = _load(job, interface)
    outputs = network.run(x)
    artifacts.check_shapes(interface.outputs, outputs, "model.py: get_model")
    network.export(job, x)
    exported = Interface(
        inputs=artifacts.with_dtypes(interface.inputs, x),
        outputs=artifacts.with_dtypes(interface.outputs, outputs),
    )
    artifacts.write_interface(job.output, exported)
    artifacts.write_example(job.output, x, outputs)


def reference(job: Job) -> None:
    """`outputs.npz`: the framework's fp32 outputs for every sample; `count.json`: what one sample costs.
    Sees no exported artifact."""
    network, x = _with_samples(job)
    fixed = _fixed_batch(Interface.model_validate(job.fields["interface"]))
    step = job.fields["batch_size"] or fixed
    samples = len(next(iter(x.values())))
    parts = [network.run({k: v[i : i + step] for k, v in x.items()}) for i in range(0, samples, step)]
    outputs = {name: arrays.concatenate_answers([part[name] for part in parts]) for name in parts[0]}
    np.savez(job.output / "outputs.npz", allow_pickle=False, **outputs)
    batch = fixed or 1
    flops, weights = _count(network, {name: array[:batch] for name, array in x.items()})
    size = sum(array.nbytes for array in (*x.values(), *outputs.values())) // samples
    # 0 operations: the counter knew none of the operators.
    found = Count(flops=flops / batch if flops else None, weights=weights, sample_bytes=size)
    (job.output / "count.json").write_text(found.model_dump_json(), encoding="utf-8")
    print(f"one sample: {found.flops or 0:.4g} FLOP, {found.weights or 0} weights, {size} bytes")


def baseline(job: Job) -> None:
    """`baseline.json`: latency in ms of the framework itself, called synchronously, by batch size."""
    network, x = _with_samples(job)
    result = {}
    for batch in job.fields["batch_sizes"]:
        rows = np.arange(batch) % len(next(iter(x.values())))
        latencies = _time(network, {k: v[rows] for k, v in x.items()})
        result[str(batch)] = {"avg_ms": float(np.mean(latencies)), "p50_ms": float(np.median(latencies))}
        print(f"framework, batch {batch}: {result[str(batch)]['avg_ms']:.2f} ms")
    (job.output / "baseline.json").write_text(json.dumps(result), encoding="utf-8")


def _fixed_batch(interface: Interface) -> int:
    """The first axis of the inputs where it is a number; 0: it is free."""
    return max(int(interface.inputs[0].shape[0]), 0)


def _count(network: Network, x: Arrays) -> tuple[float | None, int | None]:
    """Operations of one call and weights. A counter that fails must not keep a model from being served."""
    try:
        return network.count(x)
    except Exception as error:  # whatever a network provokes in the counter
        print(f"not counted: {type(error).__name__}: {error}")
        return None, None


def _load(job: Job, interface: Interface) -> Network:
    """On the CPU, unless the job names a device."""
    module = importlib.import_module(FRAMEWORKS[job.fields["framework"]])
    network: Network = module.load(job, interface, job.fields.get("device", "cpu"))
    return network


def _with_samples(job: Job) -> tuple[Network, Arrays]:
    interface = Interface.model_validate(job.fields["interface"])
    with np.load(job.inputs["samples"] / "samples.npz") as file:
        x = {t.name: file[f"x/{t.name}"] for t in interface.inputs}
    return _load(job, interface), x


def _time(network: Network, x: Arrays) -> list[float]:
    """Latencies in ms of at least 1 s and 20 calls, or of 10 s and 3 calls, after one that warms up."""
    network.run(x)
    latencies: list[float] = []
    start = time.perf_counter()
    while not _enough(len(latencies), time.perf_counter() - start):
        begin = time.perf_counter()
        network.run(x)
        latencies.append((time.perf_counter() - begin) * 1e3)
    return latencies


def _enough(calls: int, seconds: float) -> bool:
    return (calls >= 20 and seconds >= 1) or (calls >= 3 and seconds >= 10)


def answers(outputs: Any, names: list[str]) -> dict[str, Any]:
    """What a network returned, by output name: a mapping, or one value or several in the spec's order."""
    if isinstance(outputs, dict):
        return {name: outputs[name] for name in names}
    values = outputs if isinstance(outputs, tuple | list) else (outputs,)
    return dict(zip(names, values, strict=True))
