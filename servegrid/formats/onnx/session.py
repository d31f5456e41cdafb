"""ONNX Runtime session of the hosted runtime."""

import json
import math
from itertools import accumulate
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import onnxruntime
from onnxruntime import OrtValue

from ...hosting.onnx_options import cpu_options
from ...hosting.outputs import THROUGH_HOST

Array = np.ndarray[Any, Any]

PROVIDERS = {"CPU": "CPUExecutionProvider", "GPU": "CUDAExecutionProvider"}
C_NAMES = {"float": "float32", "double": "float64"}
"""ONNX Runtime's names of element types that differ from NumPy's."""
IMAGE_RANK = 4
"""Batch, channels and two axes in space."""
WITHOUT_KERNELS = ["ConvActivationFusion", "ConvAddActivationFusion"]
"""Optimizers that make operators for which cuDNN has no kernels in half precision, channels last."""
MOST_SIZES = 64
"""Batch sizes that get buffers and a graph of their own, which stay in memory."""
MOST_SHARED = 128 * 1024
"""Bytes up to which an input is copied to the device together with other small inputs: starting a copy of its
own takes longer than joining them (docs/experiments/inputs-in-one-copy.md)."""
ALIGNMENT = 256
"""Bytes, as in CUDA's own allocations (CUDA C++ Programming Guide, "Device Memory Accesses")."""


class Session:
    """`model.onnx` on one device.

    On a GPU a model whose tensors have no free axis but the batch has buffers on the device for each batch
    size. With `cuda_graph` each size also has a CUDA graph on these buffers, which ONNX Runtime captures at
    the first run of the size. Where several inputs share a copy from the host, requests in GPU memory have
    separate buffers and a separate graph.
    """

    def __init__(self, artifact: Path, kind: str, device: int = 0, cuda_graph: bool = False) -> None:
        wanted = PROVIDERS[kind]
        options = cpu_options()
        provider: Any = wanted
        disabled: list[str] = []
        if kind == "GPU":
            onnxruntime.preload_dlls()  # CUDA's libraries, where they are wheels of this environment
            options.intra_op_num_threads = 1  # otherwise one thread a core spins for nothing
            # By default the provider computes fp32 in TF32.
            settings = {"device_id": str(device), "enable_cuda_graph": str(int(cuda_graph)), "use_tf32": "0"}
            more, disabled = for_images(artifact)
            provider = (wanted, settings | more)
        self._session = onnxruntime.InferenceSession(
            str(artifact / "model.onnx"), options, providers=[provider], disabled_optimizers=disabled
        )
        used = self._session.get_providers()[0]
        if used != wanted:  # ONNX Runtime falls back to the CPU without an error
            raise RuntimeError(f"ONNX Runtime uses {used}, not {wanted}: is onnxruntime-gpu installed?")
        tensors = [*self._session.get_inputs(), *self._session.get_outputs()]
        fixed = all(isinstance(axis, int) for tensor in tensors for axis in tensor.shape[1:])
        if cuda_graph and not fixed:
            raise ValueError("cuda_graph: a CUDA graph needs every axis but the batch fixed")
        self._outputs = [output.name for output in self._session.get_outputs()]
        self._device, self._graph = device, cuda_graph
        self._bound: dict[tuple[int, bool], _Bound] | None = None
        if kind == "GPU" and fixed:
            self._bound = {}
            small = sorted(_Spec.of(tensor, 1).nbytes for tensor in self._session.get_inputs())[:2]
            # Up to this batch size there are two inputs or more to share a copy.
            self._shared_up_to = MOST_SHARED // small[1] if len(small) == 2 else 0

    def run(self, inputs: dict[str, Array]) -> dict[str, Array]:
        """One batch; arrays by tensor name, batch first."""
        size = len(next(iter(inputs.values())))
        bound = self._bind(size, from_host=True)
        if bound:
            return _to_host(bound.run(inputs))
        options = _no_graph() if self._graph else None
        return dict(zip(self._outputs, self._session.run(self._outputs, inputs, options), strict=True))

    def run_on_device(self, inputs: dict[str, Any]) -> dict[str, Array] | dict[str, OrtValue]:
        """One batch of tensors on the GPU, given by DLPack; large outputs stay there, valid until the next
        run."""
        values = {name: OrtValue.from_dlpack(tensor) for name, tensor in inputs.items()}
        bound = self._bind(next(iter(values.values())).shape()[0], from_host=False)
        if bound:
            return _returned(bound.run(values))
        binding = self._session.io_binding()
        for name, value in values.items():
            binding.bind_ortvalue_input(name, value)
        for name in self._outputs:
            binding.bind_output(name, "cuda", self._device)
        self._session.run_with_iobinding(binding, _no_graph())
        return _returned(dict(zip(self._outputs, binding.get_outputs(), strict=True)))

    def _bind(self, size: int, from_host: bool) -> "_Bound | None":
        """The buffers of a batch size, for inputs in the host's or in GPU memory; None where it has none."""
        if self._bound is None:
            return None
        shares = from_host and size <= self._shared_up_to
        key = (size, shares)
        if key not in self._bound and len(self._bound) < MOST_SIZES:
            graph = len(self._bound) + 1 if self._graph else None
            self._bound[key] = _Bound(self._session, size, self._device, graph, MOST_SHARED if shares else 0)
        return self._bound.get(key)


def for_images(artifact: Path) -> tuple[dict[str, str], list[str]]:
    """Settings of the CUDA provider, and optimizers to disable, for a model of images in half precision."""
    interface = json.loads((artifact / "interface.json").read_text(encoding="utf-8"))
    if not any(t["dtype"] == "float16" and len(t["shape"]) == IMAGE_RANK for t in interface["inputs"]):
        return {}, []
    # Tensor cores want channels last. The default search for algorithms takes slow ones
    # (docs/experiments/convolutions-channels-last.md).
    return {"prefer_nhwc": "1", "cudnn_conv_algo_search": "HEURISTIC"}, WITHOUT_KERNELS


def _returned(outputs: dict[str, OrtValue]) -> dict[str, Array] | dict[str, OrtValue]:
    if sum(value.tensor_size_in_bytes() for value in outputs.values()) > THROUGH_HOST:
        return outputs
    return _to_host(outputs)


def _to_host(outputs: dict[str, OrtValue]) -> dict[str, Array]:
    return {name: value.numpy() for name, value in outputs.items()}


def _no_graph() -> Any:
    options = onnxruntime.RunOptions()
    options.add_run_config_entry("gpu_graph_id", "-1")
    return options


class _Spec(NamedTuple):
    """A tensor of the session at one batch size."""

    name: str
    dtype: np.dtype[Any]
    shape: tuple[int, ...]

    @classmethod
    def of(cls, tensor: Any, size: int) -> "_Spec":
        element = tensor.type.removeprefix("tensor(").removesuffix(")")
        return cls(tensor.name, np.dtype(C_NAMES.get(element, element)), (size, *tensor.shape[1:]))

    @property
    def nbytes(self) -> int:
        return self.dtype.itemsize * math.prod(self.shape)

    def allocate(self, device: int) -> OrtValue:
        return OrtValue.ortvalue_from_shape_and_type(self.shape, self.dtype.type, "cuda", device)


class _Shared:
    """Small inputs in one buffer of the host's memory, which one copy brings to the device."""

    def __init__(self, specs: list[_Spec], device: int, binding: Any) -> None:
        *starts, total = accumulate((-(-spec.nbytes // ALIGNMENT) * ALIGNMENT for spec in specs), initial=0)
        self._host = np.empty(total, np.uint8)
        self._device = OrtValue.ortvalue_from_shape_and_type((total,), np.uint8, "cuda", device)
        self._views: dict[str, Array] = {}
        for start, (name, dtype, shape) in zip(starts, specs, strict=True):
            self._views[name] = np.ndarray(shape, dtype, self._host.data, start)
            binding.bind_input(name, "cuda", device, dtype.type, shape, self._device.data_ptr() + start)

    def update(self, inputs: dict[str, Array]) -> None:
        for name, view in self._views.items():
            if inputs[name].shape != view.shape:  # NumPy would repeat a sample
                raise ValueError(f"{name}: shape {inputs[name].shape}, expected {view.shape}")
            np.copyto(view, inputs[name], casting="no")
        self._device.update_inplace(self._host)


class _Bound:
    """A session's tensors of one batch size, in buffers on the device that stay the same.

    Inputs of at most `most_shared` bytes each share one buffer. `graph` is the number of the CUDA graph, if
    any.
    """

    def __init__(self, session: Any, size: int, device: int, graph: int | None, most_shared: int) -> None:
        self._session, self._binding = session, session.io_binding()
        specs = [_Spec.of(tensor, size) for tensor in session.get_inputs()]
        small = [spec for spec in specs if spec.nbytes <= most_shared]
        self._shared = _Shared(small, device, self._binding) if small else None
        self._inputs = {spec.name: spec.allocate(device) for spec in specs if spec not in small}
        self._outputs = {t.name: _Spec.of(t, size).allocate(device) for t in session.get_outputs()}
        for name, value in self._inputs.items():
            self._binding.bind_ortvalue_input(name, value)
        for name, value in self._outputs.items():
            self._binding.bind_ortvalue_output(name, value)
        self._options = onnxruntime.RunOptions()
        if graph is not None:
            self._options.add_run_config_entry("gpu_graph_id", str(graph))

    def run(self, inputs: dict[str, Any]) -> dict[str, OrtValue]:
        """Copy the inputs and run. Inputs are arrays, or values on the device if none share a buffer; the
        outputs lie on the device and are valid until the next run."""
        if self._shared:
            self._shared.update(inputs)
        for name, value in self._inputs.items():
            value.update_inplace(inputs[name])
        self._session.run_with_iobinding(self._binding, self._options)
        return self._outputs
