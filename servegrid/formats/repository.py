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
from servegrid.formats.runtime_files import copy_runtime


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
    serving_format = FORMATS[format_]
    config = pb.ModelConfig(name=name, max_batch_size=serving.max_batch_size)
    if serving.backend == "native":
        reason = serving_format.native.why_not(interface, serving.max_batch_size)
        if reason:
            raise UnsupportedError(reason)
        config.backend = serving_format.native.name
        config.default_model_filename = serving_format.file
    else:
        hosted = serving_format.hosted
        assert hosted is not None, format_
        config.backend = "python"
        config.parameters["session"].string_value = hosted.folder
        if serving.device_kind == "gpu" and serving.batching == "dynamic":
            # On a CPU collecting and answering would take cores from computing.
            config.parameters["pipelined"].string_value = "true"
        if serving.device_kind == "gpu" and serving.batching != "dynamic" and hosted.on_device:
            # Tensors on the GPU stay there. (Those of a dynamic batch are joined in the host's memory.)
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
    """Write `root/name` for one serving, in place of what was there; returns its `ModelConfig`."""
    serving_format = FORMATS[format_]
    config = model_config(name, format_, serving, interface, acceleration)
    folder = root / name
    shutil.rmtree(folder, ignore_errors=True)
    version = folder / "1"
    version.mkdir(parents=True)
    if serving.backend == "native":
        (version / serving_format.file).symlink_to(artifact / serving_format.file)
    else:
        assert serving_format.hosted is not None, format_
        (version / "artifact").symlink_to(artifact)
        copy_runtime(version, serving_format.hosted.folder)
    (folder / "config.pbtxt").write_text(text_format.MessageToString(config), encoding="utf-8")
    return config


def _tensor(kind: Any, tensor: Tensor, serving: Serving) -> Any:
    """A tensor's entry: its dims leave the batch axis out where the server batches.

    Requests always have an axis besides the batch. A tensor without one gets an axis of 1, which the server
    removes before the model runs and adds afterwards (Triton, model configuration, "Reshape").
    """
    shape = [int(axis) for axis in tensor.shape]
    entry = kind(name=tensor.name, data_type=f"TYPE_{TRITON_DTYPES[tensor.dtype]}")
    entry.dims.extend((shape[1:] or [1]) if serving.batches else shape)
    if serving.batches and len(shape) == 1:
        entry.reshape.SetInParent()
    return entry
