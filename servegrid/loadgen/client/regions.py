"""Requests whose tensors lie in system or CUDA shared memory, or in the message itself."""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any, NamedTuple

import numpy as np
import tritonclient.utils.shared_memory as shm
from tritonclient.utils import InferenceServerException

from servegrid.domain.errors import StepError
from servegrid.domain.values import SharedMemory
from servegrid.loadgen.client.answers import SHM, Read, SystemMemory
from servegrid.loadgen.client.client import MeasurementJob
from servegrid.loadgen.client.messages import Input, Place, Request
from servegrid.servers.samples import Samples

DISTINCT_REQUESTS = 8
IN_USE_S = 5.0
DEVICE = 0
Array = np.ndarray[Any, Any]
Requests = list[list[Request]]
"""For each request that may be in flight, those that are sent in turn in its place."""


class Placed(NamedTuple):
    """Requests, and what reads their outputs in shared memory."""

    requests: Requests
    read: Read


@contextmanager
def placed_requests(
    client: Any,
    order: MeasurementJob,
    samples: Samples,
    outputs: dict[str, int],
    in_flight: int,
    distinct: int = DISTINCT_REQUESTS,
) -> Iterator[Placed]:
    """Requests for every place in flight: each has `distinct` batches and an output area of its own.

    With shared memory there is one region for all inputs and one for all outputs; both are
    unregistered and removed when the block ends (if we are killed, system shared memory by the server's
    supervisor, and CUDA's by the driver).
    """
    point, endpoint = order.point, order.target.endpoint
    if point.shared_memory == "none":
        requests = [Request(endpoint.model, _inputs(b), ()) for b in _batches(samples, point.batch, distinct)]
        yield Placed([requests] * in_flight, SystemMemory().read)
        return
    batches = _batches(samples, point.batch, distinct)
    arrays = [array for batch in batches for array in batch.arrays.values()]
    out_size = sum(outputs.values())
    # A client that was killed leaves its names registered: each process has names of its own.
    names = [f"{endpoint.shm_prefix}{os.getpid()}_{kind}" for kind in ("inputs", "outputs")]
    with ExitStack() as stack:
        region(stack, client, point.shared_memory, names[0], sum(a.nbytes for a in arrays), arrays)
        handle = region(stack, client, point.shared_memory, names[1], out_size * in_flight, [])
        yield Placed(
            [
                _in_region(endpoint.model, batches, outputs, names, place * out_size)
                for place in range(in_flight)
            ],
            _read_cuda(handle, out_size * in_flight)
            if point.shared_memory == "cuda"
            else _read_system(stack),
        )


def _read_system(stack: ExitStack) -> Read:
    memory = SystemMemory()
    stack.callback(memory.close)
    return memory.read


def _read_cuda(handle: Any, size: int) -> Read:
    """Reads a region of this size. The client library copies it whole: not for use in measured windows."""
    import tritonclient.utils.cuda_shared_memory as cuda  # needs a CUDA library

    def read(place: Place) -> bytes:
        region = cuda.get_contents_as_numpy(handle, np.uint8, [size])
        return bytes(region[place.offset : place.offset + place.size].tobytes())

    return read


def inline_requests(model: str, samples: Samples, size: int) -> list[Request]:
    """DISTINCT_REQUESTS batches of a size, the tensors in the message itself."""
    return [Request(model, _inputs(batch), ()) for batch in _batches(samples, size, DISTINCT_REQUESTS)]


def _batches(samples: Samples, size: int, count: int) -> list[Samples]:
    return [samples.batch(i * size, size) for i in range(count)]


def region(
    stack: ExitStack,
    client: Any,
    kind: SharedMemory,
    name: str,
    size: int,
    arrays: Sequence[Array],
) -> Any:
    """Create a region with these arrays in it and register it, until the stack unwinds; its handle."""
    size = max(size, 1)
    if kind == "system":
        _check_room(size)
    if kind == "cuda":
        import tritonclient.utils.cuda_shared_memory as cuda  # needs a CUDA library

        handle = cuda.create_shared_memory_region(name, size, DEVICE)
        stack.callback(cuda.destroy_shared_memory_region, handle)
        client.register_cuda_shared_memory(name, cuda.get_raw_handle(handle), DEVICE, size)
        stack.callback(unregister, client, name, kind)
        cuda.set_shared_memory_region(handle, arrays)
    else:
        handle = shm.create_shared_memory_region(name, f"/{name}", size)
        stack.callback(shm.destroy_shared_memory_region, handle)
        client.register_system_shared_memory(name, f"/{name}", size)
        stack.callback(unregister, client, name)
        shm.set_shared_memory_region(handle, arrays)
    return handle


def _check_room(size: int) -> None:
    """Raises StepError where /dev/shm has no room: who writes there would be killed (SIGBUS)."""
    free = shutil.disk_usage(SHM).free
    if size > free:
        raise StepError(
            f"{SHM} has {free / 1e6:.1f} MB free, and {size / 1e6:.1f} MB are needed: make it larger "
            "(docker: --shm-size), or give --shared-memory none"
        )


def unregister(client: Any, name: str, kind: SharedMemory = "system") -> None:
    """Unregister a region; the server lets go of the last request a moment after it has answered it."""
    deadline = time.monotonic() + IN_USE_S
    while True:
        try:
            getattr(client, f"unregister_{kind}_shared_memory")(name)
            return
        except InferenceServerException as error:
            if "currently in use" not in str(error) or time.monotonic() > deadline:
                raise
        time.sleep(0.01)


def _in_region(
    model: str, batches: list[Samples], outputs: dict[str, int], names: list[str], start: int
) -> list[Request]:
    """The requests of one place in flight; its output area begins at `start` bytes."""
    places, place = [], start
    for name, size in outputs.items():
        places.append((name, Place(names[1], place, size)))
        place += size
    found, offset = [], 0
    for batch in batches:
        inputs = []
        for name, array in batch.arrays.items():
            lies = Place(names[0], offset, array.nbytes)
            inputs.append(Input(name, batch.dtypes[name], array.shape, lies, b""))
            offset += array.nbytes
        found.append(Request(model, tuple(inputs), tuple(places)))
    return found


def _inputs(batch: Samples) -> tuple[Input, ...]:
    return tuple(
        Input(name, batch.dtypes[name], array.shape, None, array.tobytes())
        for name, array in batch.arrays.items()
    )
