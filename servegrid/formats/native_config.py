"""What Triton's own backends read in `config.pbtxt`, besides tensors, instances and batching."""

from __future__ import annotations

from typing import Any

from servegrid.domain.values import Accelerator, Format, Interface, Precision, Serving, Value
from servegrid.formats import FORMATS

ENGINE_CACHE = "/tmp/servegrid-engines"  # noqa: S108
"""Where ONNX Runtime keeps the engines that it builds: the second serving of a cell loads those of the first.
Their names carry model, GPU and TensorRT version."""


class Acceleration(Value):
    """The accelerator of the native backend, its precision, and the limit of its workspace."""

    accelerator: Accelerator = "none"
    precision: Precision | None = None
    workspace_bytes: int | None = None


def add_native(
    config: Any, format_: Format, serving: Serving, interface: Interface, acceleration: Acceleration
) -> None:
    """Add the fields that the native backend of a format reads."""
    native = FORMATS[format_].native
    config.platform = native.platform
    if config.backend == "pytorch" and config.platform == "pytorch_libtorch":
        config.parameters["INFERENCE_MODE"].string_value = "true"
    if config.backend == "tensorrt" and serving.cuda_graph:
        _add_graphs(config, serving, interface)
    if acceleration.accelerator == "amp":
        config.optimization.execution_accelerators.gpu_execution_accelerator.add(name="auto_mixed_precision")
    if acceleration.accelerator == "trt" and "trt" in native.accelerators:
        config.optimization.execution_accelerators.gpu_execution_accelerator.add(
            name="tensorrt", parameters=_tensorrt(config.backend, serving, acceleration)
        )


def add_warm_up(config: Any, serving: Serving, interface: Interface) -> None:
    """Have the server run each warm-up batch size as it loads the model, on zeros.

    An input with a free axis has no size to run, so nothing is warmed up. Triton 2.51 crashes where a model
    fails on zeros.
    """
    for size in serving.warm_up_batch_sizes if _fixed(interface) else ():
        entry = config.model_warmup.add(name=f"batch_{size}", batch_size=size)
        for tensor in config.input:
            data = entry.inputs[tensor.name]
            data.data_type, data.zero_data = tensor.data_type, True
            data.dims.extend(tensor.dims)


def _tensorrt(backend: str, serving: Serving, acceleration: Acceleration) -> dict[str, str]:
    """Parameters of the accelerator `tensorrt` (onnxruntime_backend, README; tensorflow_backend, README)."""
    assert acceleration.precision is not None
    parameters = {"precision_mode": acceleration.precision.upper()}
    if acceleration.workspace_bytes:
        parameters["max_workspace_size_bytes"] = str(acceleration.workspace_bytes)
    if backend == "onnxruntime":
        parameters |= {"trt_engine_cache_enable": "1", "trt_engine_cache_path": ENGINE_CACHE}
        if serving.cuda_graph:
            parameters["trt_cuda_graph_enable"] = "1"
    return parameters


def _add_graphs(config: Any, serving: Serving, interface: Interface) -> None:
    """Add a CUDA graph for each batch size of the serving. Where shapes are free the backend decides itself
    what to capture."""
    if not _fixed(interface):
        return
    most = serving.max_batch_size
    for size in sorted({1, most, *serving.preferred_batch_sizes, *serving.warm_up_batch_sizes}):
        spec = config.optimization.cuda.graph_spec.add(batch_size=size)
        for tensor in config.input:
            spec.input[tensor.name].dim.extend(tensor.dims)


def _fixed(interface: Interface) -> bool:
    return all(axis != -1 for tensor in interface.inputs for axis in tensor.shape[1:])
