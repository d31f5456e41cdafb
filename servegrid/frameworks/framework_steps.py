"""Steps that run the model's network in its framework: export, reference outputs, latency."""

from __future__ import annotations

import json
import time

import numpy as np

from servegrid.domain import arrays
from servegrid.domain.arrays import Arrays
from servegrid.domain.roofline import Count
from servegrid.domain.values import Interface
from servegrid.formats import artifacts
from servegrid.frameworks.fields import BaselineJob, ExportJob, NetworkJob, ReferenceJob
from servegrid.frameworks.networks import Network, load
from servegrid.frameworks.plugin_steps import batches

EXAMPLE_BATCH = 2


def export(job: ExportJob) -> None:
    """The model file, its interface and an example."""
    interface = job.fields.interface
    _, x, _ = next(batches(job, _fixed_batch(interface) or EXAMPLE_BATCH))
    artifacts.check_shapes(interface.inputs, x, "dataloader.py: get_dataloader_fn")
    network = load(job)
    outputs = network.run(x)
    artifacts.check_shapes(interface.outputs, outputs, "model.py: get_model")
    network.export(job, x)
    exported = Interface(
        inputs=artifacts.with_dtypes(interface.inputs, x),
        outputs=artifacts.with_dtypes(interface.outputs, outputs),
    )
    artifacts.write_interface(job.output, exported)
    artifacts.write_example(job.output, x, outputs)


def reference(job: ReferenceJob) -> None:
    """`outputs.npz`: the framework's fp32 outputs for every sample; `count.json`: operations, weights and
    bytes of one sample. The job has no exported artifact."""
    network, x = _with_samples(job)
    fixed = _fixed_batch(job.fields.interface)
    step = job.fields.batch_size or fixed
    samples = len(next(iter(x.values())))
    parts = [network.run({k: v[i : i + step] for k, v in x.items()}) for i in range(0, samples, step)]
    outputs = {name: arrays.concatenate_answers([part[name] for part in parts]) for name in parts[0]}
    np.savez(job.output / "outputs.npz", allow_pickle=False, **outputs)
    batch = fixed or 1
    flops, weights = _count(network, {name: array[:batch] for name, array in x.items()})
    size = sum(array.nbytes for array in (*x.values(), *outputs.values())) // samples
    # 0 operations: the counter knows none of the operators.
    found = Count(flops=flops / batch if flops else None, weights=weights, sample_bytes=size)
    (job.output / "count.json").write_text(found.model_dump_json(), encoding="utf-8")
    print(f"one sample: {found.flops or 0:.4g} FLOP, {found.weights or 0} weights, {size} bytes")


def baseline(job: BaselineJob) -> None:
    """`baseline.json`: latency in ms of a synchronous call of the network, by batch size."""
    network, x = _with_samples(job)
    result = {}
    for batch in job.fields.batch_sizes:
        rows = np.arange(batch) % len(next(iter(x.values())))
        latencies = _time(network, {k: v[rows] for k, v in x.items()})
        result[str(batch)] = {"avg_ms": float(np.mean(latencies)), "p50_ms": float(np.median(latencies))}
        print(f"framework, batch {batch}: {result[str(batch)]['avg_ms']:.2f} ms")
    (job.output / "baseline.json").write_text(json.dumps(result), encoding="utf-8")


def _fixed_batch(interface: Interface) -> int:
    """The first axis of the inputs where it is a number; 0 where it is free."""
    return max(int(interface.inputs[0].shape[0]), 0)


def _count(network: Network, x: Arrays) -> tuple[float | None, int | None]:
    """Operations of one call, and weights; nothing where the counter fails: the model can still be served."""
    try:
        return network.count(x)
    except Exception as error:  # of any kind, depending on the network
        print(f"not counted: {type(error).__name__}: {error}")
        return None, None


def _with_samples(job: NetworkJob) -> tuple[Network, Arrays]:
    with np.load(job.inputs["samples"] / "samples.npz") as file:
        x = {t.name: file[f"x/{t.name}"] for t in job.fields.interface.inputs}
    return load(job), x


def _time(network: Network, x: Arrays) -> list[float]:
    """Latencies in ms, after one call to warm up, of at least 20 calls and 1 s, or 3 calls and 10 s."""
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
