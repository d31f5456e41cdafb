"""The small frozen values that travel between stages.

A cell has a product to build (`Product`), and for each scenario a `Serving` and a `LoadPlan`, on one profile.
Each value is validated once, here, and never changed.
"""

from __future__ import annotations

import hashlib
import re
from pathlib import Path
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field, PositiveFloat, PositiveInt, model_validator

from servegrid.domain.names import CountOrZero, Dimension, TensorName
from servegrid.domain.slo import Slo

Format = Literal["ts-trace", "ts-script", "aoti", "onnx", "trt", "tf-savedmodel", "tf-trt"]
ExportFormat = Literal["ts-trace", "ts-script", "torch-export", "onnx", "tf-savedmodel"]
ModelFile = Literal["onnx", "torchscript", "torch_export", "savedmodel", "keras"]
ModelSource = Literal[ModelFile, "hf"]
Framework = Literal["torch", "tensorflow", "onnx", "torchscript", "torch_export", "savedmodel", "keras"]
Precision = Literal["fp32", "fp16", "bf16", "int8"]
Accelerator = Literal["none", "trt", "amp"]
Batching = Literal["disabled", "static", "dynamic"]
Scenario = Literal["offline", "online"]
Generator = Literal["perf_analyzer", "client"]
Protocol = Literal["grpc", "http"]
SharedMemory = Literal["none", "system", "cuda"]
InputData = Literal["samples", "random", "zero"]
Distribution = Literal["poisson", "constant"]
Scalar = bool | int | float | str

TRITON_DTYPES = {
    "bool": "BOOL",
    "uint8": "UINT8",
    "uint16": "UINT16",
    "uint32": "UINT32",
    "uint64": "UINT64",
    "int8": "INT8",
    "int16": "INT16",
    "int32": "INT32",
    "int64": "INT64",
    "float16": "FP16",
    "float32": "FP32",
    "float64": "FP64",
}
"""NumPy's name of a data type -> Triton's (Triton, model configuration, "Datatypes")."""

SHOWN_DIGITS = 8
"""Of a digest, in a cell's name."""
NOT_RUN = "not_run.txt"
"""An artifact with this file was built but cannot run here; the file holds the reason."""


class Value(BaseModel):
    """Base of every value: frozen; an unknown field is an error."""

    model_config = ConfigDict(frozen=True, extra="forbid")


class Tensor(Value):
    """One input or output: NumPy's dtype name and a shape whose first axis is the batch.

    An axis is a number, the name of a model parameter (fixed by it), or -1 (free).
    """

    name: TensorName
    dtype: Literal[
        "bool", "uint8", "uint16", "uint32", "uint64", "int8", "int16", "int32", "int64",
        "float16", "float32", "float64",
    ]  # fmt: skip
    shape: tuple[Dimension, ...] = Field(min_length=1)


class Interface(Value):
    """Inputs and outputs of one artifact, every axis a number (-1: free)."""

    inputs: tuple[Tensor, ...]
    outputs: tuple[Tensor, ...]


class Product(Value):
    """The model, format and precision to build; the key of a build stage holds the fields that the stage
    reads.

    `model_digest`: SHA-256 of the model's file, which tells files of one name apart; None: a model in Python.
    `random_weights`: the plug-in seeds its network and data, so nothing is prepared and no metric has a
    meaning.
    """

    model: str
    variant: str
    model_digest: str | None = None
    parameters: dict[str, Scalar] = {}
    export_format: ExportFormat
    export_precision: Precision = "fp32"
    format: Format
    precision: Precision
    accelerator: Accelerator = "none"
    accelerator_precision: Precision | None = None
    opset: PositiveInt | None = None
    torch_jit: Literal["none", "trace", "script"] = "none"
    triton_release: str
    random_weights: bool = False


class BatchLimit(Value):
    """The largest batch of a server. In Triton 0 means no batching: a tensor's first axis is then an axis
    like any other, and each request is run alone."""

    max_batch_size: CountOrZero

    @property
    def batches(self) -> bool:
        """Whether the server has a batch axis."""
        return self.max_batch_size > 0


class Serving(BatchLimit):
    """The settings in `config.pbtxt`, the time limit for loading, and the protocol of the clients.

    `warm_up_batch_sizes`: the server runs these as it loads the model.
    """

    batching: Batching
    preferred_batch_sizes: tuple[PositiveInt, ...] = ()
    max_queue_delay_us: int = Field(1, ge=0)
    instances: PositiveInt = 1
    device_kind: Literal["cpu", "gpu"] = "cpu"
    backend: Literal["native", "hosted"] = "hosted"
    protocol: Protocol = "grpc"
    cuda_graph: bool = False
    warm_up_batch_sizes: tuple[PositiveInt, ...] = ()
    load_timeout_s: PositiveInt = 100

    @model_validator(mode="after")
    def _batching_matches_its_limit(self) -> Serving:
        if self.batches == (self.batching == "disabled"):
            raise ValueError(
                f"batching {self.batching} does not go with max_batch_size {self.max_batch_size}"
            )
        return self

    def largest_batch(self, requested: int) -> int:
        """The largest batch that the model runs when each request holds `requested` samples: the dynamic
        batcher joins requests."""
        return max(requested, self.max_batch_size) if self.batching == "dynamic" else requested


class LoadPlan(Value):
    """The points to measure. Each batch size is measured at every concurrency or, without `fixed_points`,
    at the concurrencies that find the knee, up to the largest; then at every request rate, in requests/s;
    then at the rates that find the highest one within the objective `slo`.
    """

    scenario: Scenario
    batch_sizes: tuple[PositiveInt, ...] = Field(min_length=1)
    concurrency: tuple[PositiveInt, ...] = Field(min_length=1)
    shared_memory: SharedMemory = "system"
    input_data: InputData = "samples"
    protocol: Protocol = "grpc"
    request_count: PositiveInt = 50
    window_s: PositiveFloat = 1.0
    warm_up: bool = True
    generator: Generator = "client"
    fixed_points: bool = True
    request_rates: tuple[PositiveFloat, ...] = ()
    distribution: Distribution = "poisson"
    slo: Slo | None = None

    @property
    def points(self) -> tuple[tuple[int, int], ...]:
        """(batch, concurrency) of every point of the grid, small ones first."""
        return tuple((b, c) for b in self.batch_sizes for c in self.concurrency)

    @property
    def extent(self) -> str:
        """The points in words."""
        rates = len(self.batch_sizes) * len(self.request_rates)
        adaptive = f"{self.scenario} up to concurrency {max(self.concurrency)}"
        return ", ".join(
            [
                f"{len(self.points)} {self.scenario}" if self.fixed_points else adaptive,
                *([f"{rates} rates"] if rates else []),
                *([f"rates for {self.slo}"] if self.slo else []),
            ]
        )


class Bounds(Value):
    """Limits of a sweep that are lower than the model's own; None: the model's limit holds."""

    max_batch_size: PositiveInt | None = None
    max_concurrency: PositiveInt | None = None

    @property
    def suffix(self) -> str:
        """The end of a bounded cell's name, as `-b4-c8`; without bounds nothing."""
        limits = {"b": self.max_batch_size, "c": self.max_concurrency}
        return "".join(f"-{letter}{limit}" for letter, limit in limits.items() if limit)

    @classmethod
    def of_name(cls, name: str) -> Bounds:
        """The bounds at the end of a cell's name."""
        found = re.search(r"(?:-b([1-9]\d*))?(?:-c([1-9]\d*))?$", name)
        assert found
        return cls.model_validate({"max_batch_size": found[1], "max_concurrency": found[2]})


class Cell(Value):
    """One product, served statically (offline) and dynamically (online) on one profile.

    `settings`: the fields of model.yaml that `--set` changed, as KEY=JSON.
    """

    product: Product
    static: Serving
    dynamic: Serving
    offline: LoadPlan
    online: LoadPlan
    profile: str
    bounds: Bounds = Bounds()
    settings: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        """Unique on its profile. Holds what varies in a matrix, in a fixed order, and digests of the model's
        file and of the settings, and the bounds of a sweep: results of two files of one name, of other
        settings, or of a bounded sweep are never compared."""
        p = self.product
        file = [p.model_digest[:SHOWN_DIGITS]] if p.model_digest else []
        parts = [p.model, p.variant, *file, p.format, p.precision]
        if p.export_format != p.format:
            parts.append(f"from-{p.export_format}")
        if p.accelerator != "none":
            parts.append(p.accelerator)
        if self.dynamic.instances > 1:
            parts.append(f"x{self.dynamic.instances}")
        if self.settings:
            digest = hashlib.sha256("\n".join(self.settings).encode()).hexdigest()
            parts.append(f"set_{digest[:SHOWN_DIGITS]}")
        return "-".join(parts) + self.bounds.suffix


def instances_of(name: str) -> int | None:
    """The number of instances in a cell's name; None: it names none."""
    found = re.search(r"-x([1-9]\d*)(?:-set_[0-9a-f]+)?(?:-b\d+)?(?:-c\d+)?$", name)
    return int(found[1]) if found else None


class Excluded(Value):
    """A cell of the matrix that does not run, with the rule that excludes it."""

    cell: Cell
    reason: str


class ArtifactRef(Value):
    """One artifact of the store: digest of its content, path relative to the store, bytes."""

    digest: str
    path: str
    size: int


class Channel(Value):
    """How to reach a gRPC port: in the clear or by TLS, with the headers in `headers_file`.

    ca_file: the authorities to trust (PEM); by default the system's. Options, logs and results hold the
    name of the headers' file only, because a header may be a token.
    """

    tls: bool = False
    ca_file: Path | None = None
    headers_file: Path | None = None

    @property
    def plain(self) -> bool:
        return self == Channel()


class Endpoint(Value):
    """A loaded model that answers requests. `load_s` is null if it was loaded before. `server_pid` is the
    server's process if it runs on this host."""

    grpc_url: str
    http_url: str
    model: str
    shm_prefix: str
    server: str
    server_version: str
    server_log: str
    backend: str
    load_s: float | None
    first_request_ms: float
    channel: Channel = Channel()
    server_pid: int | None = None
