"""Triton Python backend model: batches requests, runs the artifact's session, splits the answers.

Tensors are exchanged by DLPack only: with NumPy 2 the backend's own NumPy exchange is silently wrong (an
int64 input reads as zeros, a response made from an array arrives empty).
"""

import ctypes
import functools
import importlib
import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import triton_python_backend_utils as pb_utils  # type: ignore[import-not-found]  # exists in the stub

from . import pipeline, threads

Array = np.ndarray[Any, Any]

_drop_destructor = ctypes.pythonapi.PyCapsule_SetDestructor
_drop_destructor.argtypes = [ctypes.py_object, ctypes.c_void_p]


class _Input:
    """An input of the backend as DLPack, in the form that NumPy consumes.

    NumPy first passes keywords that the backend's tensors refuse, and raising that error takes longer than
    the exchange itself.
    """

    def __init__(self, tensor: Any) -> None:
        self._tensor = tensor

    def __dlpack__(self, **_: Any) -> Any:
        return self._tensor.__dlpack__()

    def __dlpack_device__(self) -> Any:
        return self._tensor.__dlpack_device__()


class _Output:
    """A NumPy array as DLPack, in the form that the backend consumes.

    The backend renames each capsule that it takes, and NumPy's destructor prints a ValueError for a capsule
    of another name. The destructor has nothing to do, because the backend calls the tensor's deleter itself;
    so it is removed.
    """

    def __init__(self, array: Array) -> None:
        if not (array.flags.c_contiguous and array.flags.writeable):  # NumPy exports no read-only array
            array = np.require(array, requirements=["C", "W"])
        if array.size == 0:  # the backend does not take NumPy's strides of an empty array for contiguous
            strides = [array.itemsize * math.prod(array.shape[axis + 1 :]) for axis in range(array.ndim)]
            array = np.lib.stride_tricks.as_strided(array, strides=strides)
        self._array = array

    def __dlpack__(self, **_: Any) -> Any:
        capsule = self._array.__dlpack__()
        _drop_destructor(capsule, None)
        return capsule

    def __dlpack_device__(self) -> tuple[int, int]:
        return self._array.__dlpack_device__()


class TritonPythonModel:
    """One instance; Triton gives it one call of `execute` at a time.

    With the parameter `pipelined` answers are sent by response senders: `execute` returns and takes the next
    requests while a batch runs.
    """

    def initialize(self, args: dict[str, str]) -> None:
        config = json.loads(args["model_config"])
        artifact = Path(args["model_repository"], args["model_version"], "artifact")
        kind, device = args["model_instance_kind"], args["model_instance_device_id"]
        if kind == "CPU":  # before the session imports its framework, which reads the variables
            instances = sum(group["count"] for group in config["instance_group"])
            threads.limit(instances)
        format_folder = config["parameters"]["session"]["string_value"]
        session = importlib.import_module(f"..formats.{format_folder}.session", __package__)
        self._inputs = [entry["name"] for entry in config["input"]]
        self._outputs = [entry["name"] for entry in config["output"]]
        cuda = config.get("optimization", {}).get("cuda", {})
        on_gpu = {"device": int(device), "cuda_graph": cuda.get("graphs", False)} if kind == "GPU" else {}
        open_session = functools.partial(session.Session, artifact, kind, **on_gpu)
        only_cpu = config["parameters"].get("FORCE_CPU_ONLY_INPUT_TENSORS", {}).get("string_value", "yes")
        self._takes_device_tensors = only_cpu == "no"
        self._pipeline: Any = None
        self._session: Any = None
        if "pipelined" in config["parameters"]:
            self._pipeline = pipeline.Pipeline(open_session, config["max_batch_size"])
        else:
            self._session = open_session()

    def execute(self, requests: list[Any]) -> list[Any] | None:
        given = [{tensor.name(): tensor for tensor in request.inputs()} for request in requests]
        if self._takes_device_tensors and not all(t.is_cpu() for tensors in given for t in tensors.values()):
            return [self._response(self._run_on_device(tensors)) for tensors in given]
        try:
            inputs = [{name: np.from_dlpack(_Input(ts[name])) for name in self._inputs} for ts in given]
        except Exception as error:
            return [self._response(error) for _ in requests]
        if self._pipeline is None:
            return [self._response(found) for found in pipeline.run(self._session, inputs)]
        for request, arrays in zip(requests, inputs, strict=True):
            answer = functools.partial(self._send, request.get_response_sender())
            self._pipeline.put(pipeline.Waiting(arrays, answer))
        return None

    def finalize(self) -> None:
        if self._pipeline is not None:
            self._pipeline.close()

    def _run_on_device(self, tensors: dict[str, Any]) -> dict[str, Any] | Exception:
        """Run one request whose tensors lie on the GPU: they are neither copied to the host nor batched. The
        server takes the answer before it calls again."""
        try:
            return dict(self._session.run_on_device({name: tensors[name] for name in self._inputs}))
        except Exception as error:
            return error

    def _send(self, sender: Any, found: dict[str, Any] | Exception) -> None:
        sender.send(self._response(found), flags=pb_utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL)

    def _response(self, found: dict[str, Any] | Exception) -> Any:
        # Each response has an error object of its own: the backend frees it with the response, and an object
        # that several responses share crashes the server.
        if isinstance(found, Exception):
            error = pb_utils.TritonError(f"{type(found).__name__}: {found}")
            return pb_utils.InferenceResponse([], error=error)
        try:
            tensors = [pb_utils.Tensor.from_dlpack(name, _exported(found[name])) for name in self._outputs]
        except Exception as error:  # an output cannot be sent: the other requests still get their answers
            return self._response(error)
        return pb_utils.InferenceResponse(tensors)


def _exported(tensor: Any) -> Any:
    """A tensor on the GPU exports itself."""
    return _Output(tensor) if isinstance(tensor, np.ndarray) else tensor
