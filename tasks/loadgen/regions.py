"""Request messages whose tensors lie in system shared memory, or in the message itself."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import numpy as np
import tritonclient.utils.shared_memory as shm
from tritonclient.grpc import service_pb2 as pb
from tritonclient.utils import InferenceServerException

from tasks.loadgen.client import Order
from tasks.loadgen.requests import Samples

DISTINCT_REQUESTS = 8
IN_USE_S = 5.0

Messages = list[list[Any]]
"""For each worker, the requests that it sends in turn."""


@contextmanager
def shared_messages(
    client: Any, order: Order, samples: Samples, outputs: dict[str, int]
) -> Iterator[Messages]:
    """Messages for every worker: each has DISTINCT_REQUESTS batches and an output area of its own.

    With system shared memory there is one region for all inputs and one for all outputs; both
    are unregistered and removed when the block ends (and by the server's supervisor, if we are killed).
    """
    point, endpoint = order.point, order.target.endpoint
    batches = [samples.batch(i * point.batch, point.batch) for i in range(DISTINCT_REQUESTS)]
    if point.shared_memory == "none":
        yield [[_inline(endpoint.model, b) for b in batches] for _ in range(point.concurrency)]
        return
    inputs = [list(batch.arrays.values()) for batch in batches]
    in_size = sum(array.nbytes for arrays in inputs for array in arrays)
    out_size = sum(outputs.values())
    sizes = (max(in_size, 1), max(out_size * point.concurrency, 1))
    # A client that was killed leaves its names registered: each process has names of its own.
    names = [f"{endpoint.shm_prefix}{os.getpid()}_{kind}" for kind in ("inputs", "outputs")]
    with ExitStack() as stack:
        handles = []
        for name, size in zip(names, sizes, strict=True):
            handles.append(shm.create_shared_memory_region(name, f"/{name}", size))
            stack.callback(shm.destroy_shared_memory_region, handles[-1])
            client.register_system_shared_memory(name, f"/{name}", size)
            stack.callback(unregister, client, name)
        shm.set_shared_memory_region(handles[0], [array for arrays in inputs for array in arrays])
        yield [
            _messages(endpoint.model, batches, outputs, names, worker * out_size)
            for worker in range(point.concurrency)
        ]


def unregister(client: Any, name: str) -> None:
    """Unregister a region; the server lets go of the last request a moment after it has answered it."""
    deadline = time.monotonic() + IN_USE_S
    while True:
        try:
            client.unregister_system_shared_memory(name)
            return
        except InferenceServerException as error:
            if "currently in use" not in str(error) or time.monotonic() > deadline:
                raise
        time.sleep(0.01)


def _messages(
    model: str, batches: list[Samples], outputs: dict[str, int], names: list[str], start: int
) -> list[Any]:
    """One worker's messages; its output area begins at `start` bytes."""
    found, offset = [], 0
    for batch in batches:
        request = pb.ModelInferRequest(model_name=model)
        for name, array in batch.arrays.items():
            entry = _add_input(request, name, batch.dtypes[name], array)
            _point_at(entry, names[0], offset, array.nbytes)
            offset += array.nbytes
        place = start
        for name, size in outputs.items():
            _point_at(request.outputs.add(name=name), names[1], place, size)
            place += size
        found.append(request)
    return found


def _inline(model: str, batch: Samples) -> Any:
    request = pb.ModelInferRequest(model_name=model)
    for name, array in batch.arrays.items():
        _add_input(request, name, batch.dtypes[name], array)
        request.raw_input_contents.append(array.tobytes())
    return request


def _add_input(request: Any, name: str, dtype: str, array: np.ndarray[Any, Any]) -> Any:
    return request.inputs.add(name=name, datatype=dtype, shape=array.shape)


def _point_at(tensor: Any, region: str, offset: int, size: int) -> None:
    tensor.parameters["shared_memory_region"].string_param = region
    tensor.parameters["shared_memory_offset"].int64_param = offset
    tensor.parameters["shared_memory_byte_size"].int64_param = size
