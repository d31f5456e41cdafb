"""What the steps read that run a model's own Python files, or measure the host."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from servegrid.domain.values import ExportFormat, Framework, Interface, ModelFile, Scalar, Value
from servegrid.store.job import Fields, Job

DeviceKind = Literal["cpu", "gpu"]
Parameters = dict[str, Scalar]
Pooling = Literal["none", "mean", "cls"]


class PluginFields(Fields):
    """The model's parameters, which its Python files take as arguments."""

    parameters: Parameters


class PrepareFields(PluginFields):
    """The variant, and the digests of the user's files that it is made of."""

    variant: str
    files: dict[str, str] = Field({})


class ProfileDataFields(PluginFields):
    """How many samples are taken."""

    samples: int


class ScoreFields(PluginFields):
    """The inputs of the job that are predictions."""

    predictions: tuple[str, ...]


class StockScoreFields(Fields):
    """A stock metric, its output, the inputs of the job that are predictions, and whether the framework's
    answers are also scored in random orders."""

    metric: str
    output: str
    predictions: tuple[str, ...]
    permuted: bool


class NetworkFields(PluginFields):
    """The network's framework, its inputs and outputs, and where it runs."""

    framework: Framework
    interface: Interface
    device: DeviceKind = "cpu"


class ExportFields(NetworkFields):
    """The format to export to; `opset` is an ONNX graph's."""

    format: ExportFormat
    opset: int | None


class ReferenceFields(NetworkFields):
    """The batch size of the calls; 0: that of the interface."""

    batch_size: int


class BaselineFields(NetworkFields):
    """The batch sizes that are measured, and where and for which campaign."""

    batch_sizes: tuple[int, ...]
    campaign: str
    host: str
    profile: str


class Machine(Value):
    """What the ceilings of a host depend on; fields as in `servegrid.host.environment.Host`."""

    name: str
    cpu: str
    cores: int
    gpu: str
    driver: str | None


class CeilingsFields(Fields):
    """The device that is measured, and the host that it is in."""

    device: DeviceKind
    profile: str
    host: Machine


class ModelFileFields(Fields):
    """The kind of a model file, the name of the model that is made of it, fixed shapes of its inputs, the
    parameters with which it is read, and the distributions that it needs."""

    kind: ModelFile
    name: str
    shapes: dict[str, tuple[int, ...]]
    parameters: Parameters = Field({})
    requires: tuple[str, ...]


class HuggingFaceFields(Fields):
    """The model that is made of a Hugging Face folder: its name, its task, the class of transformers that
    loads it, how its embeddings are pooled, the files of checkpoint and processors, and the distributions
    that it needs."""

    name: str
    task: str
    auto_class: str
    pooling: Pooling
    normalize: bool
    checkpoint: tuple[str, ...]
    processor: tuple[str, ...]
    requires: tuple[str, ...]


PluginJob = Job[PluginFields]
PrepareJob = Job[PrepareFields]
ProfileDataJob = Job[ProfileDataFields]
ScoreJob = Job[ScoreFields]
StockScoreJob = Job[StockScoreFields]
NetworkJob = Job[NetworkFields]
ExportJob = Job[ExportFields]
ReferenceJob = Job[ReferenceFields]
BaselineJob = Job[BaselineFields]
CeilingsJob = Job[CeilingsFields]
ModelFileJob = Job[ModelFileFields]
HuggingFaceJob = Job[HuggingFaceFields]
