"""The conversion to `trt`: an engine of TensorRT or TensorRT-RTX from an ONNX graph."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np

from servegrid.domain.errors import UnsupportedError
from servegrid.domain.values import Interface, Tensor
from servegrid.formats import artifacts
from servegrid.formats.trt.fields import TrtJob
from servegrid.formats.trt.session import LIBRARY, LOG, VERSION, Session, refusal, trt


def convert_tensorrt(job: TrtJob) -> None:
    """`model.plan` and `engine.json`, and `timing.cache` where the library measures tactics.

    The network is strongly typed: its precision is the graph's.

    Raises:
        UnsupportedError: the parser does not support an operator, or this host has no card to build on.
        ValueError: the graph is broken or differs from its interface, or the build failed.
    """
    assert job.fields.library == LIBRARY, (job.fields.library, LIBRARY)
    capability = job.fields.card.compute_capability
    if LIBRARY == "tensorrt" and not capability:
        raise UnsupportedError("TensorRT builds an engine on its card, and this host has none")
    builder = trt.Builder(LOG)
    network = builder.create_network(1 << int(trt.NetworkDefinitionCreationFlag.STRONGLY_TYPED))
    parse(network, job.inputs["source"] / "model.onnx")
    check_interface(network, artifacts.read_interface(job.inputs["source"]))
    config = configure(builder, job)
    plan = builder.build_serialized_network(network, config)
    if plan is None:
        raise ValueError(f"{LIBRARY} built no engine: {LOG.last}")
    (job.output / "model.plan").write_bytes(plan)
    engine = describe(config, job)
    (job.output / "engine.json").write_text(json.dumps(engine, indent=1), encoding="utf-8")
    if LIBRARY == "tensorrt":
        (job.output / "timing.cache").write_bytes(config.get_timing_cache().serialize())
    reason = refusal(engine, LIBRARY, VERSION, capability)
    if reason:
        artifacts.not_run(job, reason)
    else:
        artifacts.finish(job, lambda artifact, _: Session(artifact, "GPU"))


def parse(network: Any, path: Path) -> None:
    """Read the ONNX file into the network, and print every error of the parser.

    Raises:
        UnsupportedError: TensorRT's parser does not support a part of the graph, and nothing else is wrong.
        ValueError: the graph is broken.
    """
    parser = trt.OnnxParser(network, LOG)
    if parser.parse_from_file(str(path)):
        return
    errors = [parser.get_error(number) for number in range(parser.num_errors)]
    for error in errors:
        print(error)
    more = f" (and {len(errors) - 1} more above)" if len(errors) > 1 else ""
    first = f"{LIBRARY}'s ONNX parser: {' '.join(str(errors[0]).split())}{more}"
    raise UnsupportedError(first) if all(map(_unsupported, errors)) else ValueError(first)


def _unsupported(error: Any) -> bool:
    # The parser searches for an unknown operator among the plug-ins.
    return error.code().name.startswith("UNSUPPORTED_") or "Plugin not found" in error.desc()


def check_interface(network: Any, interface: Interface) -> None:
    """Raises ValueError where the network's inputs or outputs are not the interface's."""
    inputs = {t.name: t for t in map(network.get_input, range(network.num_inputs))}
    outputs = {t.name: t for t in map(network.get_output, range(network.num_outputs))}
    for kind, wanted, found in (("input", interface.inputs, inputs), ("output", interface.outputs, outputs)):
        if {t.name for t in wanted} != set(found):
            raise ValueError(f"the graph has {kind}s {sorted(found)}, not {sorted(t.name for t in wanted)}")
        for tensor in wanted:
            _check(kind, tensor, found[tensor.name])


def _check(kind: str, tensor: Tensor, found: Any) -> None:
    dtype, shape = np.dtype(trt.nptype(found.dtype)).name, tuple(found.shape)
    fits = len(shape) == len(tensor.shape) and all(
        have in (-1, want) for have, want in zip(shape, tensor.shape, strict=True)
    )
    if dtype != tensor.dtype or not fits:
        raise ValueError(
            f"{kind} {tensor.name!r} of the graph is {dtype} {list(shape)}, not {tensor.dtype} "
            f"{list(tensor.shape)}"
        )


def configure(builder: Any, job: TrtJob) -> Any:
    """One optimisation profile, the workspace's limit, and a timing cache where the library has one."""
    config = builder.create_builder_config()
    # By default TF32 rounds the factors of fp32 to 10 bits, which other formats do not.
    config.clear_flag(trt.BuilderFlag.TF32)
    profile = builder.create_optimization_profile()
    for name, shapes in job.fields.shapes.items():
        profile.set_shape(name, shapes.min, shapes.opt, shapes.max)
    config.add_optimization_profile(profile)
    if job.fields.workspace_bytes:
        config.set_memory_pool_limit(trt.MemoryPoolType.WORKSPACE, job.fields.workspace_bytes)
    if LIBRARY == "tensorrt":  # TensorRT-RTX ignores it (deprecated in 1.2)
        config.set_timing_cache(config.create_timing_cache(b""), ignore_mismatch=False)
    return config


def describe(config: Any, job: TrtJob) -> dict[str, Any]:
    """The library and settings that made the engine, and the cards that can run it."""
    rtx = LIBRARY == "tensorrt-rtx"
    flags = [name for name, flag in trt.BuilderFlag.__members__.items() if config.get_flag(flag)]
    return {
        "library": LIBRARY,
        "version": VERSION,
        "compute_capabilities": portable() if rtx else [job.fields.card.compute_capability],
        "hardware_compatibility": None if rtx else config.hardware_compatibility_level.name,
        "flags": flags,
        "workspace_bytes": job.fields.workspace_bytes,
        "shapes": {name: shapes.model_dump() for name, shapes in job.fields.shapes.items()},
        "built_on": job.fields.card.model_dump(exclude_none=True) or None,
    }


def portable() -> list[str]:
    """Compute capabilities that TensorRT-RTX's engines run on by default: all that it knows except
    Turing's (TensorRT-RTX, "CPU-Only AOT and TensorRT-RTX Engines")."""
    known = [name.removeprefix("SM") for name in trt.ComputeCapability.__members__ if name.startswith("SM")]
    return [f"{number[:-1]}.{number[-1]}" for number in known if number != "75"]
