"""Steps that import PyTorch: export, the reference outputs, the framework's own latency."""

from __future__ import annotations

import json
import shutil
import time
import warnings
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch

from tasks.child import artifacts
from tasks.child.artifacts import Arrays
from tasks.child.plugin_steps import arguments, batches, load
from tasks.core.build import Job
from tasks.core.errors import UnsupportedError
from tasks.core.values import Interface

EXAMPLE_BATCH = 2


def export(job: Job) -> None:
    """`model.pt` or `model.onnx` with a free batch axis, its interface and an example."""
    interface = Interface.model_validate(job.fields["interface"])
    module = _module(job, interface)
    _, x, _ = next(batches(job, EXAMPLE_BATCH))
    artifacts.check_shapes(interface.inputs, x, "dataloader.py: get_dataloader_fn")
    outputs = run(module, interface, x)
    artifacts.check_shapes(interface.outputs, outputs, "model.py: get_model")
    inputs = tuple(torch.from_numpy(x[t.name]) for t in interface.inputs)
    with warnings.catch_warnings():
        # TorchScript and the exporter are deprecated in PyTorch 2.13, and work.
        warnings.simplefilter("ignore", DeprecationWarning)
        warnings.simplefilter("ignore", FutureWarning)
        if job.fields["format"] == "onnx":
            tensors = (*interface.inputs, *interface.outputs)
            free = {t.name: [i for i, axis in enumerate(t.shape) if axis == -1] for t in tensors}
            torch.onnx.export(
                module,
                inputs,
                str(job.output / "model.onnx"),
                input_names=[t.name for t in interface.inputs],
                output_names=[t.name for t in interface.outputs],
                dynamic_axes={n: {i: f"{n}_{i}" if i else "batch" for i in a} for n, a in free.items()},
                opset_version=job.fields["opset"],
                dynamo=False,  # this graph is the one that the transformer optimizer can fuse
            )
        else:
            traced = torch.jit.trace(module, inputs)
            alone = {k: v[:1] for k, v in x.items()}
            _require_same(run(traced, interface, alone), run(module, interface, alone))
            traced.save(str(job.output / "model.pt"))
    exported = Interface(
        inputs=artifacts.with_dtypes(interface.inputs, x),
        outputs=artifacts.with_dtypes(interface.outputs, outputs),
    )
    artifacts.write_interface(job.output, exported)
    artifacts.write_example(job.output, x, outputs)


def convert_ts_trace(job: Job) -> None:
    """TorchScript at the wanted precision: as exported, or with half-precision weights."""
    source = job.inputs["exported"]
    interface = artifacts.read_interface(source)
    x, expected = artifacts.read_example(source)
    if job.fields["precision"] == "fp32":
        shutil.copy(source / "model.pt", job.output / "model.pt")
    else:
        torch.jit.load(str(source / "model.pt")).half().save(str(job.output / "model.pt"))
    module = torch.jit.load(str(job.output / "model.pt"))
    try:
        outputs = run(module, interface, x)
    except RuntimeError as error:
        if "not implemented for 'Half'" in str(error):
            raise UnsupportedError(f"PyTorch on this CPU: {str(error).splitlines()[-1]}") from error
        raise
    artifacts.print_differences(outputs, expected)
    converted = artifacts.with_dtypes(interface.outputs, outputs)
    artifacts.write_interface(job.output, Interface(inputs=interface.inputs, outputs=converted))


def reference(job: Job) -> None:
    """`outputs.npz`: the framework's fp32 outputs for every sample. Sees no exported artifact."""
    interface = Interface.model_validate(job.fields["interface"])
    module = _module(job, interface)
    with np.load(job.inputs["samples"] / "samples.npz") as file:
        x = {t.name: file[f"x/{t.name}"] for t in interface.inputs}
    step = job.fields["batch_size"]
    count = len(x[interface.inputs[0].name])
    parts = [
        run(module, interface, {k: v[i : i + step] for k, v in x.items()}) for i in range(0, count, step)
    ]
    outputs = {t.name: np.concatenate([p[t.name] for p in parts]) for t in interface.outputs}
    np.savez(job.output / "outputs.npz", allow_pickle=False, **outputs)


def baseline(job: Job) -> None:
    """`baseline.json`: latency in ms of the framework itself, called synchronously, by batch size."""
    interface = Interface.model_validate(job.fields["interface"])
    module = _module(job, interface)
    with np.load(job.inputs["samples"] / "samples.npz") as file:
        x = {t.name: file[f"x/{t.name}"] for t in interface.inputs}
    result = {}
    for batch in job.fields["batch_sizes"]:
        rows = np.arange(batch) % len(next(iter(x.values())))
        latencies = _time(module, interface, {k: v[rows] for k, v in x.items()})
        result[str(batch)] = {"avg_ms": float(np.mean(latencies)), "p50_ms": float(np.median(latencies))}
        print(f"framework, batch {batch}: {result[str(batch)]['avg_ms']:.2f} ms")
    (job.output / "baseline.json").write_text(json.dumps(result), encoding="utf-8")


def run(module: Any, interface: Interface, x: Arrays) -> Arrays:
    """One call of a module with NumPy arrays in and out, by name."""
    with torch.inference_mode():
        inputs = [torch.from_numpy(np.ascontiguousarray(x[t.name])) for t in interface.inputs]
        answer = module(*inputs)
    values: Sequence[Any] = answer if isinstance(answer, tuple | list) else (answer,)
    return {t.name: v.cpu().numpy() for t, v in zip(interface.outputs, values, strict=True)}


def _module(job: Job, interface: Interface) -> Any:
    make = load(job, "model.py").get_model
    module, names = make(**arguments(job, make))
    for kind, tensors in (("inputs", interface.inputs), ("outputs", interface.outputs)):
        wanted = [t.name for t in tensors]
        if list(names[kind]) != wanted:
            raise ValueError(f"model.py: get_model names {kind} {names[kind]}, model.yaml {wanted}")
    if module.training:
        raise ValueError("model.py: get_model must return its outermost module after .eval()")
    return module


def _time(module: Any, interface: Interface, x: Arrays) -> list[float]:
    """Latencies in ms of at least 1 s and 20 calls, after 3 that warm up."""
    for _ in range(3):
        run(module, interface, x)
    latencies: list[float] = []
    start = time.perf_counter()
    while len(latencies) < 20 or time.perf_counter() - start < 1.0:
        begin = time.perf_counter()
        run(module, interface, x)
        latencies.append((time.perf_counter() - begin) * 1e3)
    return latencies


def _require_same(outputs: Arrays, expected: Arrays) -> None:
    for name, difference in artifacts.largest_difference(outputs, expected).items():
        if difference > 1e-3:
            raise ValueError(
                f"the trace answers a batch of 1 wrongly (output {name!r}: {difference:.3g} off): "
                f"model.py's forward depends on the batch size that it was traced with"
            )
