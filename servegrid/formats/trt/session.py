"""TensorRT session of the hosted runtime, for engines of TensorRT and of TensorRT-RTX."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import torch

try:
    import tensorrt as trt

    LIBRARY = "tensorrt"
except ModuleNotFoundError:  # the bindings of both have the same names
    import tensorrt_rtx_bindings as trt

    LIBRARY = "tensorrt-rtx"

__all__ = ["LIBRARY", "LOG", "VERSION", "Session", "refusal", "trt"]

Array = np.ndarray[Any, Any]
VERSION = str(trt.__version__)


class Log(trt.ILogger):  # type: ignore[misc]  # it has no types
    """Prints warnings and errors in full, and keeps the errors."""

    def __init__(self) -> None:
        trt.ILogger.__init__(self)
        self.errors: list[str] = []

    def log(self, severity: Any, message: str) -> None:
        if severity <= trt.ILogger.Severity.WARNING:
            print(f"{LIBRARY} {severity.name}: {message}", flush=True)
        if severity <= trt.ILogger.Severity.ERROR:
            self.errors.append(message)

    @property
    def last(self) -> str:
        """The last error, on one line."""
        return " ".join(self.errors[-1].split()) if self.errors else "no error was logged"


LOG = Log()  # TensorRT uses the first logger of a process and ignores others


def refusal(engine: dict[str, Any], library: str, version: str, capability: str | None) -> str | None:
    """Why the engine that `engine.json` describes cannot run with this library on a card of this compute
    capability (None: there is no card), or None.

    An engine is bound to the version that built it, and to its card's architecture (TensorRT, "Engine
    Compatibility"); one of TensorRT-RTX is for several ("CPU-Only AOT and TensorRT-RTX Engines").
    """
    if (engine["library"], engine["version"]) != (library, version):
        made = f"{engine['library']} {engine['version']}"
        return f"the engine was built by {made}; {library} {version} is installed here"
    if capability not in engine["compute_capabilities"]:
        built = f"this engine of {library} {version} runs on NVIDIA cards of compute capability "
        built += ", ".join(engine["compute_capabilities"])
        return f"{built}; this host's has {capability}" if capability else f"{built}; this host has none"
    return None


class Outputs(trt.IOutputAllocator):  # type: ignore[misc]  # it has no types
    """Device memory for outputs, allocated when the engine requests it: a length that depends on the data is
    known only during the run. Memory is kept for the next run."""

    def __init__(self) -> None:
        trt.IOutputAllocator.__init__(self)
        self._memory: dict[str, torch.Tensor] = {}
        self._shapes: dict[str, tuple[int, ...]] = {}

    def reallocate_output_async(self, name: str, memory: int, size: int, alignment: int, stream: int) -> int:
        held = self._memory.get(name)
        if held is None or held.numel() < size:
            # PyTorch aligns device memory to 512 bytes, TensorRT requires 256 at most.
            held = self._memory[name] = torch.empty(max(size, 1), dtype=torch.uint8, device="cuda")
        return int(held.data_ptr())

    def reallocate_output(self, name: str, memory: int, size: int, alignment: int) -> int:
        return self.reallocate_output_async(name, memory, size, alignment, 0)

    def notify_shape(self, name: str, shape: Any) -> None:
        self._shapes[name] = tuple(shape)

    def read(self, name: str, dtype: torch.dtype) -> Array:
        """An output of the last run, copied to the host."""
        shape = self._shapes[name]
        used = self._memory[name][: int(np.prod(shape)) * dtype.itemsize]
        array: Array = used.view(dtype).reshape(shape).cpu().numpy()
        return array


class Session:
    """`model.plan` on one GPU."""

    def __init__(self, artifact: Path, kind: str, device: int = 0, cuda_graph: bool = False) -> None:
        if kind != "GPU":
            raise RuntimeError(f"a TensorRT engine runs on a GPU, not on KIND_{kind}")
        if not torch.cuda.is_available():
            raise RuntimeError("PyTorch, which moves the tensors, sees no GPU: is its build one with CUDA?")
        if cuda_graph:
            raise RuntimeError("a hosted engine has no CUDA graphs: set serving.cuda_graph to false")
        torch.cuda.set_device(device)
        engine = json.loads((artifact / "engine.json").read_text(encoding="utf-8"))
        major, minor = torch.cuda.get_device_capability()
        reason = refusal(engine, LIBRARY, VERSION, f"{major}.{minor}")
        if reason:
            raise RuntimeError(reason)
        self._runtime = trt.Runtime(LOG)
        self._engine = self._runtime.deserialize_cuda_engine((artifact / "model.plan").read_bytes())
        if self._engine is None:
            raise RuntimeError(f"{LIBRARY} does not load the engine: {LOG.last}")
        self._context = self._engine.create_execution_context()
        self._stream = torch.cuda.Stream()
        self._outputs = Outputs()
        interface = json.loads((artifact / "interface.json").read_text(encoding="utf-8"))
        self._dtypes = {t["name"]: getattr(torch, t["dtype"]) for t in interface["outputs"]}
        for name in self._dtypes:
            self._context.set_output_allocator(name, self._outputs)

    def run(self, inputs: dict[str, Array]) -> dict[str, Array]:
        """One batch; arrays by tensor name, batch first."""
        with torch.cuda.stream(self._stream):
            # Kept until the run is done, because the engine reads their memory.
            tensors = {name: torch.from_numpy(array).contiguous().cuda() for name, array in inputs.items()}
            for name, tensor in tensors.items():
                if not self._context.set_input_shape(name, tuple(tensor.shape)):
                    raise RuntimeError(f"{name}: shape {list(tensor.shape)}: {LOG.last}")
                self._context.set_tensor_address(name, tensor.data_ptr())
            if not self._context.execute_async_v3(self._stream.cuda_stream):
                raise RuntimeError(f"{LIBRARY} did not run the engine: {LOG.last}")
            self._stream.synchronize()
            return {name: self._outputs.read(name, dtype) for name, dtype in self._dtypes.items()}
