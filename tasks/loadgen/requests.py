"""Real samples as requests to a Triton model."""

from __future__ import annotations

import base64
import json
from pathlib import Path
from typing import Any

import numpy as np
import tritonclient.grpc as triton
from tritonclient.utils import triton_to_np_dtype

Array = np.ndarray[Any, Any]
Arrays = dict[str, Array]

ANSWER_S = 30.0


class Samples:
    """Samples of a model in the data types that its server wants, batch axis first."""

    def __init__(self, arrays: Arrays, dtypes: dict[str, str]) -> None:
        self.dtypes = dtypes
        self.arrays: Arrays = {
            name: np.ascontiguousarray(arrays[name].astype(triton_to_np_dtype(dtype), copy=False))
            for name, dtype in dtypes.items()
        }

    @classmethod
    def read(cls, artifact: Path, config: str) -> Samples:
        """Samples of a `profile_data` artifact for a model config (JSON)."""
        entries = json.loads(config)["input"]
        dtypes = {entry["name"]: entry["data_type"].removeprefix("TYPE_") for entry in entries}
        with np.load(artifact / "samples.npz") as file:
            return cls({name: file[f"x/{name}"] for name in dtypes}, dtypes)

    def __len__(self) -> int:
        return len(next(iter(self.arrays.values())))

    def batch(self, start: int, size: int) -> Samples:
        """`size` samples from `start`, going round at the end."""
        rows = (start + np.arange(size)) % len(self)
        return Samples({name: array[rows] for name, array in self.arrays.items()}, self.dtypes)

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


def server_config(client: Any, model: str) -> str:
    """The config of a loaded model, as the server has it, in JSON."""
    return json.dumps(client.get_model_config(model, as_json=True, client_timeout=ANSWER_S)["config"])


def output_sizes(result: Any) -> dict[str, int]:
    """Bytes of each output of a response."""
    names = [output.name for output in result.get_response().outputs]
    return {name: result.as_numpy(name).nbytes for name in names}
