"""Answers that are kept to be checked: a random sample while requests run, read when they have ended."""

from __future__ import annotations

import math
import mmap
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from tritonclient.utils import triton_to_np_dtype

from servegrid.domain.arrays import Arrays
from servegrid.loadgen.client.codec import Codec
from servegrid.loadgen.client.messages import Place, Request

SHM = Path("/dev/shm")

Read = Callable[[Place], bytes]
"""The bytes of a place in shared memory."""


class Answer(NamedTuple):
    """One answer as it came: which request of its process it was (from 1), when it came (time.perf_counter),
    which of the distinct requests was sent, and the bytes of its outputs in shared memory."""

    number: int
    end: float
    turn: int
    data: Any
    placed: tuple[bytes, ...]


class Reservoir:
    """A random sample of at most `size` of all requests, each as likely as the others.

    A request that is not kept costs one comparison: the number of the next one to keep is drawn ahead
    (K.-H. Li, Reservoir-sampling algorithms of time complexity O(n(1 + log(N/n))), ACM TOMS 20, 1994).
    """

    def __init__(self, size: int, seed: int = 0) -> None:
        self.size, self.kept = size, list[Answer]()
        self.count = 0
        self._random = np.random.default_rng(seed)
        self._weight = 1.0
        self._next = 1 if size else math.inf

    def wants(self) -> bool:
        """Count a request; whether its answer is to be kept."""
        self.count += 1
        return self.count >= self._next

    def keep(self, answer: Answer) -> None:
        """Keep an answer that is wanted, in place of a random one where there is no room."""
        if len(self.kept) < self.size:
            self.kept.append(answer)
        else:
            self.kept[int(self._random.integers(self.size))] = answer
        if len(self.kept) < self.size:
            self._next = self.count + 1
        else:
            self._weight *= math.exp(math.log(1.0 - self._random.random()) / self.size)
            skipped = math.log(1.0 - self._random.random()) / math.log1p(-self._weight)
            self._next = self.count + 1 + math.floor(skipped)


class SystemMemory:
    """Reads what the server has written into regions of system shared memory."""

    def __init__(self) -> None:
        self._maps: dict[str, mmap.mmap] = {}

    def read(self, place: Place) -> bytes:
        if place.region not in self._maps:
            with (SHM / place.region).open("rb") as file:
                self._maps[place.region] = mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ)
        return self._maps[place.region][place.offset : place.offset + place.size]

    def close(self) -> None:
        for mapped in self._maps.values():
            mapped.close()


def arrays(codec: Codec, request: Request, data: Any, placed: tuple[bytes, ...]) -> Arrays:
    """The outputs of an answer; `placed` has the bytes of those that the request places in shared memory."""
    places = {name: content for (name, _), content in zip(request.outputs, placed, strict=True)}
    found = {}
    for output in codec.read(data):
        content = places.get(output.name, output.data)
        dtype, count = np.dtype(triton_to_np_dtype(output.datatype)), math.prod(output.shape)
        found[output.name] = np.frombuffer(content, dtype, count).reshape(output.shape)
    return found
