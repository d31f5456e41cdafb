"""ONNX Runtime session of the hosted runtime."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
from onnxruntime import OrtValue

from .outputs import THROUGH_HOST

Array = np.ndarray[Any, Any]

PROVIDERS = {"CPU": "CPUExecutionProvider", "GPU": "CUDAExecutionProvider"}
C_NAMES = {"float": "float32", "double": "float64"}
"""ONNX Runtime's names of element types that are not NumPy's."""
IMAGE_RANK = 4
"""Batch, channels and two axes in space."""
APART = ["ConvActivationFusion", "ConvAddActivationFusion"]
"""Optimizers whose operators cuDNN has no kernels for in half precision, channels last."""
MOST_SIZES = 64
"""Batch sizes that get buffers and a graph of their own, which stay: not every size of a large batch."""


class Session:
    """`model.onnx` on one device.

    On a GPU a model whose tensors have no free axis but the batch has buffers of its own on the
    device for each batch size; with `cuda_graph` also a CUDA graph that works on them, which ONNX Runtime
    captures when a size is first asked for.
    """

    def __init__(self, artifact: Path, kind: str, device: int = 0, cuda_graph: bool = False) -> None:
        wanted = PROVIDERS[kind]
        options = onnxruntime.SessionOptions()
        provider: Any = wanted
        apart: list[str] = []
        if kind == "GPU":
            onnxruntime.preload_dlls()  # CUDA's libraries, where they are wheels of this environment
            options.intra_op_num_threads = 1  # or a thread a core spins, for nothing
            # fp32 is fp32: by default the provider would use TF32.
            settings = {"device_id": str(device), "enable_cuda_graph": str(int(cuda_graph)), "use_tf32": "0"}
            more, apart = for_images(artifact)
            provider = (wanted, settings | more)
        self._session = onnxruntime.InferenceSession(
            str(artifact / "model.onnx"), options, providers=[provider], disabled_optimizers=apart
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
        self._bound: dict[int, _Bound] | None = {} if kind == "GPU" and fixed else None

    def run(self, inputs: dict[str, Array]) -> dict[str, Array]:
        """One batch; arrays by tensor name, batch first."""
        if self._bound is None:
            return dict(zip(self._outputs, self._session.run(self._outputs, inputs), strict=True))
        size = len(next(iter(inputs.values())))
        if size not in self._bound and len(self._bound) == MOST_SIZES:
            found = self._session.run(self._outputs, inputs, _no_graph())
            return dict(zip(self._outputs, found, strict=True))
        return self._bind(size).run(inputs)

    def run_on_device(self, inputs: dict[str, Any]) -> dict[str, Array] | dict[str, OrtValue]:
        """The same for tensors that lie on the GPU, given by DLPack; large outputs stay there, good until the
        next run."""
        values = {name: OrtValue.from_dlpack(tensor) for name, tensor in inputs.items()}
        size = next(iter(values.values())).shape()[0]
        if self._bound is not None and (size in self._bound or len(self._bound) < MOST_SIZES):
            return _handed_over(self._bind(size).run_on_device(values))
        binding = self._session.io_binding()
        for name, value in values.items():
            binding.bind_ortvalue_input(name, value)
        for name in self._outputs:
            binding.bind_output(name, "cuda", self._device)
        self._session.run_with_iobinding(binding, _no_graph())
        return _handed_over(dict(zip(self._outputs, binding.get_outputs(), strict=True)))

    def _bind(self, size: int) -> "_Bound":
        assert self._bound is not None
        if size not in self._bound:
            self._bound[size] = _Bound(self._session, size, self._device, self._graph)
        return self._bound[size]


def for_images(artifact: Path) -> tuple[dict[str, str], list[str]]:
    """Of a model that takes halved images: settings of the CUDA provider, and optimizers to leave out."""
    interface = json.loads((artifact / "interface.json").read_text(encoding="utf-8"))
    if not any(t["dtype"] == "float16" and len(t["shape"]) == IMAGE_RANK for t in interface["inputs"]):
        return {}, []
    # As tensor cores want them; the search for algorithms takes slow ones (docs/performance.md).
    return {"prefer_nhwc": "1", "cudnn_conv_algo_search": "HEURISTIC"}, APART


def _handed_over(outputs: dict[str, OrtValue]) -> dict[str, Array] | dict[str, OrtValue]:
    if sum(value.tensor_size_in_bytes() for value in outputs.values()) > THROUGH_HOST:
        return outputs
    return {name: value.numpy() for name, value in outputs.items()}


def _no_graph() -> Any:
    options = onnxruntime.RunOptions()
    options.add_run_config_entry("gpu_graph_id", "-1")
    return options


class _Bound:
    """A session's tensors of one batch size at places on the device that stay the same."""

    def __init__(self, session: Any, size: int, device: int, graph: bool) -> None:
        def place(tensor: Any) -> OrtValue:
            element = tensor.type.removeprefix("tensor(").removesuffix(")")
            dtype = np.dtype(C_NAMES.get(element, element)).type
            return OrtValue.ortvalue_from_shape_and_type((size, *tensor.shape[1:]), dtype, "cuda", device)

        self._session = session
        self._inputs = {tensor.name: place(tensor) for tensor in session.get_inputs()}
        self._outputs = {tensor.name: place(tensor) for tensor in session.get_outputs()}
        self._binding = session.io_binding()
        for name, value in self._inputs.items():
            self._binding.bind_ortvalue_input(name, value)
        for name, value in self._outputs.items():
            self._binding.bind_ortvalue_output(name, value)
        self._options = onnxruntime.RunOptions()
        if graph:  # a graph a batch size, by this number
            self._options.add_run_config_entry("gpu_graph_id", str(size))

    def run(self, inputs: dict[str, Array]) -> dict[str, Array]:
        """Copy in, run, copy out; the copies wait for the device."""
        for name, value in self._inputs.items():
            value.update_inplace(inputs[name])
        self._session.run_with_iobinding(self._binding, self._options)
        return {name: value.numpy() for name, value in self._outputs.items()}

    def run_on_device(self, inputs: dict[str, OrtValue]) -> dict[str, OrtValue]:
        """The same for tensors that are there already; the outputs are good until the next run."""
        for name, value in self._inputs.items():
            value.update_inplace(inputs[name])
        self._session.run_with_iobinding(self._binding, self._options)
        return self._outputs
