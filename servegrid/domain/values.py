"""The small frozen values that travel between stages.

A cell is what is built (`Product`), how it is served (`Serving`, once for each scenario), how it is
loaded (`LoadPlan`) and where (a profile). Each is validated once, here, and never changed.
"""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field, PositiveFloat, PositiveInt

from servegrid.domain.names import Dimension, TensorName

Format = Literal["ts-trace", "ts-script", "aoti", "onnx", "trt", "tf-savedmodel", "tf-trt"]
ExportFormat = Literal["ts-trace", "ts-script", "torch-export", "onnx", "tf-savedmodel"]
ModelFile = Literal["onnx", "torchscript", "savedmodel"]
Framework = Literal["torch", "tensorflow", "onnx", "torchscript", "savedmodel"]
Precision = Literal["fp32", "fp16", "bf16", "int8"]
Accelerator = Literal["none", "trt", "amp"]
Scenario = Literal["offline", "online"]
Generator = Literal["perf_analyzer", "client"]
Protocol = Literal["grpc", "http"]
SharedMemory = Literal["none", "system", "cuda"]
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

NOT_RUN = "not_run.txt"
"""The file by which an artifact says that it was built and not run, and why."""


class Value(BaseModel):
    """Base of every value: frozen, and closed to fields it does not know."""

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
    """What is built: each stage's key holds those of these fields that it reads.

    With random weights nothing is prepared: the plug-in's network and data are seeded, so no metric means
    anything.
    """

    model: str
    variant: str
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


class Serving(Value):
    """How it is served: `config.pbtxt`, how long loading may take, and the `protocol` that is meant for it.

    `warm_up_batch_sizes` are run by the server as it loads the model. `cores_awake`: the cores of
    the server's host are kept from sleeping for as long as it runs (ADR 16).
    """

    batching: Literal["disabled", "static", "dynamic"]
    max_batch_size: int = Field(ge=0)
    preferred_batch_sizes: tuple[PositiveInt, ...] = ()
    max_queue_delay_us: int = Field(1, ge=0)
    instances: PositiveInt = 1
    device_kind: Literal["cpu", "gpu"] = "cpu"
    backend: Literal["native", "hosted"] = "hosted"
    protocol: Protocol = "grpc"
    cuda_graph: bool = False
    cores_awake: bool = False
    warm_up_batch_sizes: tuple[PositiveInt, ...] = ()
    load_timeout_s: PositiveInt = 100


class LoadPlan(Value):
    """How it is loaded. Every batch size is measured at every concurrency or, without `fixed_points`, at
    those up to the largest that show where the knee is; then at every request rate, in requests/s; then at
    the rates that show which is the highest within the objective `slo` (`servegrid.domain.slo`).
    """

    scenario: Scenario
    batch_sizes: tuple[PositiveInt, ...] = Field(min_length=1)
    concurrency: tuple[PositiveInt, ...] = Field(min_length=1)
    shared_memory: SharedMemory = "system"
    protocol: Protocol = "grpc"
    request_count: PositiveInt = 50
    window_s: PositiveFloat = 1.0
    warm_up: bool = True
    generator: Generator
    fixed_points: bool = True
    request_rates: tuple[PositiveFloat, ...] = ()
    distribution: Distribution = "poisson"
    slo: str | None = None

    @property
    def points(self) -> tuple[tuple[int, int], ...]:
        """(batch, concurrency) of every point of the grid, small ones first."""
        return tuple((b, c) for b in self.batch_sizes for c in self.concurrency)

    @property
    def extent(self) -> str:
        """Which points there will be, in words."""
        rates = len(self.batch_sizes) * len(self.request_rates)
        adaptive = f"{self.scenario} up to concurrency {max(self.concurrency)}"
        return ", ".join(
            [
                f"{len(self.points)} {self.scenario}" if self.fixed_points else adaptive,
                *([f"{rates} rates"] if rates else []),
                *([f"rates for {self.slo}"] if self.slo else []),
            ]
        )


class Cell(Value):
    """One product, served statically (offline) and dynamically (online) on one profile."""

    product: Product
    static: Serving
    dynamic: Serving
    offline: LoadPlan
    online: LoadPlan
    profile: str

    @property
    def name(self) -> str:
        """Readable and unique in a campaign: what varies in a matrix, in a fixed order."""
        p = self.product
        parts = [p.model, p.variant, p.format, p.precision]
        if p.export_format != p.format:
            parts.append(f"from-{p.export_format}")
        if p.accelerator != "none":
            parts.append(p.accelerator)
        if self.dynamic.instances > 1:
            parts.append(f"x{self.dynamic.instances}")
        return "-".join(parts)


class Excluded(Value):
    """A cell of the matrix that will not run, and the rule that says why."""

    cell: Cell
    reason: str


class ArtifactRef(Value):
    """One artifact of the store: digest of its content, path relative to the store, bytes."""

    digest: str
    path: str
    size: int


class Channel(Value):
    """How a gRPC port is reached: in the clear or by TLS, trusting the authorities of `ca_file` (PEM; the
    system's where there is none), with the headers of a file.

    Only the file's name travels: what it holds, a token perhaps, is in no option, log or result.
    """

    tls: bool = False
    ca_file: Path | None = None
    headers_file: Path | None = None

    @property
    def plain(self) -> bool:
        return self == Channel()


class Endpoint(Value):
    """A model that is loaded and answers. Times are in seconds and milliseconds as named; `load_s` is null
    where it was loaded before. `server_pid` is the server's process, where it is one of this host."""

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
