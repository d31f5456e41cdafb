"""The model repository of a cell, and the `config.pbtxt` of a serving."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

from google.protobuf import text_format
from tritonclient.grpc import model_config_pb2 as pb

from servegrid.domain.errors import UnsupportedError
from servegrid.domain.values import TRITON_DTYPES, Format, Interface, Serving, Tensor
from servegrid.formats import FORMATS
from servegrid.formats.native_config import Acceleration, add_native, add_warm_up

HOSTING = Path(__file__).parents[1] / "hosting"

OF_TORCH = (
    "torch_device.py",
    "torch_graphs.py",
    "volumes.py",
    "sequences.py",
    "transformer.py",
    "layer_norm.py",
)

SHARED = ("model.py", "pipeline.py", "outputs.py", "threads.py", *OF_TORCH)


def model_config(
    name: str,
    format_: Format,
    serving: Serving,
    interface: Interface,
    acceleration: Acceleration = Acceleration(),  # noqa: B008  # frozen
) -> Any:
    """The `ModelConfig` message of a serving, for the native backend or the hosted runtime.

    Raises:
        UnsupportedError: the native backend cannot serve this interface.
    """
    module = FORMATS[format_]
    config = pb.ModelConfig(name=name, max_batch_size=serving.max_batch_size)
    if serving.backend == "native":
        reason = module.why_not_native(interface, serving.max_batch_size)
        if reason:
            raise UnsupportedError(reason)
        config.backend = module.NATIVE_BACKEND
        config.default_model_filename = module.FILE
    else:
        assert module.SESSION is not None, format_
        config.backend = "python"
        config.parameters["session"].string_value = module.SESSION
        if serving.device_kind == "gpu" and serving.batching == "dynamic":
            # A CPU has nothing to gain: what collects and answers would take the cores that compute.
            config.parameters["pipelined"].string_value = "true"
        if serving.device_kind == "gpu" and serving.batching != "dynamic" and module.ON_DEVICE:
            # What the client places on the GPU stays there; a batch is joined in the host's memory.
            config.parameters["FORCE_CPU_ONLY_INPUT_TENSORS"].string_value = "no"
    config.input.extend(_tensor(pb.ModelInput, t, serving) for t in interface.inputs)
    config.output.extend(_tensor(pb.ModelOutput, t, serving) for t in interface.outputs)
    kind = pb.ModelInstanceGroup.KIND_CPU if serving.device_kind == "cpu" else pb.ModelInstanceGroup.KIND_GPU
    config.instance_group.add(count=serving.instances, kind=kind)
    if serving.cuda_graph:
        config.optimization.cuda.graphs = True
    if serving.backend == "native":
        add_native(config, format_, serving, interface, acceleration)
    add_warm_up(config, serving, interface)
    if serving.batching == "dynamic":
        config.dynamic_batching.preferred_batch_size.extend(serving.preferred_batch_sizes)
        config.dynamic_batching.max_queue_delay_microseconds = serving.max_queue_delay_us
    return config


def write_repository(
    root: Path,
    name: str,
    format_: Format,
    serving: Serving,
    interface: Interface,
    artifact: Path,
    acceleration: Acceleration = Acceleration(),  # noqa: B008  # frozen
) -> Any:
    """Lay out `root/name` for one serving, anew; returns its `ModelConfig`."""
    config = model_config(name, format_, serving, interface, acceleration)
    folder = root / name
    shutil.rmtree(folder, ignore_errors=True)
    version = folder / "1"
    version.mkdir(parents=True)
    if serving.backend == "native":
        (version / FORMATS[format_].FILE).symlink_to(artifact / FORMATS[format_].FILE)
    else:
        (version / "artifact").symlink_to(artifact)
        for file in (*SHARED, f"{FORMATS[format_].SESSION}.py"):
            shutil.copy(HOSTING / file, version / file)
    (folder / "config.pbtxt").write_text(text_format.MessageToString(config), encoding="utf-8")
    return config


def _tensor(kind: Any, tensor: Tensor, serving: Serving) -> Any:
    """The batch axis is implied where the server batches, and spelled out where it does not.

    Requests always have an axis beside the batch. A tensor without one is given one of 1, which the server
    takes off before the model sees it and puts on afterwards (Triton, model configuration, "Reshape").
    """
    shape = [int(axis) for axis in tensor.shape]
    entry = kind(name=tensor.name, data_type=f"TYPE_{TRITON_DTYPES[tensor.dtype]}")
    entry.dims.extend((shape[1:] or [1]) if serving.batches else shape)
    if serving.batches and len(shape) == 1:
        entry.reshape.SetInParent()
    return entry
