"""Real samples as requests to a Triton model."""

from __future__ import annotations

import base64
import json
import math
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np
import tritonclient.grpc as triton
from tritonclient.grpc import model_config_pb2 as pb
from tritonclient.utils import triton_to_np_dtype

from servegrid.domain.arrays import Array, Arrays
from servegrid.domain.values import InputData
from servegrid.servers.connection import TIMEOUT_S

SEED = 0
"""Of random input data, so that two campaigns send the same."""


class Samples:
    """Samples of a model in the data types that its server wants, batch axis first.

    fixed: the only batch that a server which does no batching takes;
    flat_outputs: those to which the server adds an axis of 1 after the batch axis;
    output_dtypes: what the server's config says of its outputs.
    """

    def __init__(
        self,
        arrays: Arrays,
        dtypes: dict[str, str],
        fixed: int | None = None,
        flat_outputs: tuple[str, ...] = (),
        output_dtypes: Mapping[str, str] = MappingProxyType({}),
    ) -> None:
        self.dtypes, self.fixed, self.flat_outputs = dtypes, fixed, flat_outputs
        self.output_dtypes = output_dtypes
        self.arrays: Arrays = {
            name: np.ascontiguousarray(arrays[name].astype(triton_to_np_dtype(dtype), copy=False))
            for name, dtype in dtypes.items()
        }

    @classmethod
    def read(cls, artifact: Path, config: str, data: InputData = "samples") -> Samples:
        """Samples of a `profile_data` artifact, or tensors of their shapes, for a model config (JSON)."""
        model = json.loads(config)
        dtypes, output_dtypes = (
            {entry["name"]: entry["data_type"].removeprefix("TYPE_") for entry in model.get(kind, ())}
            for kind in ("input", "output")
        )
        with np.load(artifact / "samples.npz") as file:
            arrays = {name: made(data, file[f"x/{name}"]) for name in dtypes}
        if not model.get("max_batch_size"):
            return cls(arrays, dtypes, int(model["input"][0]["dims"][0]), output_dtypes=output_dtypes)
        flat_inputs, flat_outputs = (
            tuple(entry["name"] for entry in model.get(kind, ()) if "reshape" in entry)
            for kind in ("input", "output")
        )
        arrays |= {name: arrays[name][:, None] for name in flat_inputs}
        return cls(arrays, dtypes, flat_outputs=flat_outputs, output_dtypes=output_dtypes)

    def __len__(self) -> int:
        return len(next(iter(self.arrays.values())))

    def batch(self, start: int, size: int) -> Samples:
        """`size` samples from `start`, going round at the end."""
        rows = (start + np.arange(size)) % len(self)
        arrays = {name: array[rows] for name, array in self.arrays.items()}
        return Samples(arrays, self.dtypes, self.fixed, self.flat_outputs, self.output_dtypes)

    def unflattened(self, answer: Arrays) -> Arrays:
        """An answer without the axes of 1 that the server adds."""
        return answer | {name: answer[name][:, 0] for name in self.flat_outputs}

    def inputs(self) -> list[Any]:
        """The whole as inputs of one request."""
        found = []
        for name, array in self.arrays.items():
            entry = triton.InferInput(name, array.shape, self.dtypes[name])
            entry.set_data_from_numpy(array)
            found.append(entry)
        return found

    def write_perf_analyzer(self, path: Path, count: int) -> None:
        """The first samples in perf_analyzer's `--input-data` form, bytes in base64, no batch axis."""
        rows = [
            {
                name: {
                    "content": {"b64": base64.b64encode(array[i].tobytes()).decode()},
                    "shape": list(array.shape[1:]),
                }
                for name, array in self.arrays.items()
            }
            for i in range(min(count, len(self)))
        ]
        path.write_text(json.dumps({"data": rows}), encoding="utf-8")


def made(data: InputData, samples: Array) -> Array:
    """These samples, zeros of their shape, or random values between their least and their largest finite
    one, so that an index stays within its table. Text is never replaced."""
    if data == "samples" or samples.dtype.kind not in "biuf":
        return samples
    finite = samples[np.isfinite(samples)]
    if data == "zero" or not finite.size:
        return np.zeros_like(samples)
    rng, low, high = np.random.default_rng(SEED), finite.min(), finite.max()
    if samples.dtype.kind == "f":
        values = float(low) + (float(high) - float(low)) * rng.random((*samples.shape,))
        return values.astype(samples.dtype)
    numbers: Array = rng.integers(low, high, samples.shape, samples.dtype, endpoint=True)
    return numbers


def server_config(client: Any, model: str) -> str:
    """The config of a loaded model, as the server has it, in JSON."""
    return json.dumps(client.get_model_config(model, as_json=True, client_timeout=TIMEOUT_S)["config"])


def output_sizes(client: Any, model: str, samples: Samples, batch: int, distinct: int) -> dict[str, int]:
    """Bytes that each output of a batch may take: as the config says or, where an axis depends on the
    data, as much for every sample as the largest answer among the first `distinct` ones."""
    outputs = client.get_model_config(model, client_timeout=TIMEOUT_S).config.output
    if all(axis > 0 for output in outputs for axis in output.dims):
        return {o.name: batch * math.prod(o.dims) * _item_bytes(o.data_type) for o in outputs}
    largest: dict[str, int] = {}
    for index in range(min(distinct, len(samples))):
        result = client.infer(model, samples.batch(index, 1).inputs(), client_timeout=TIMEOUT_S)
        for name in (output.name for output in result.get_response().outputs):
            largest[name] = max(largest.get(name, 0), result.as_numpy(name).nbytes)
    return {name: batch * size for name, size in largest.items()}


def _item_bytes(data_type: int) -> int:
    name = pb.DataType.Name(data_type).removeprefix("TYPE_")
    return int(np.dtype(triton_to_np_dtype(name)).itemsize)
