"""A model's network in its framework, loaded by the framework's own module."""

from __future__ import annotations

import importlib
from typing import Any, Protocol

from servegrid.domain.arrays import Arrays
from servegrid.domain.values import Framework
from servegrid.frameworks.fields import ExportJob, NetworkJob

FRAMEWORKS: dict[Framework, str] = {
    "torch": "servegrid.frameworks.torch_network",
    "tensorflow": "servegrid.frameworks.tensorflow_network",
    "onnx": "servegrid.frameworks.model_files.onnx_file",
    "torchscript": "servegrid.frameworks.model_files.torchscript_file",
    "torch_export": "servegrid.frameworks.model_files.torch_export_file",
    "savedmodel": "servegrid.frameworks.model_files.savedmodel_file",
    "keras": "servegrid.frameworks.model_files.keras_file",
}
"""Framework -> the module that has its `load`; one process imports one of them."""


class Network(Protocol):
    """A model's network in evaluation mode."""

    def run(self, x: Arrays) -> Arrays:
        """One call; arrays by tensor name in and out."""

    def export(self, job: ExportJob, x: Arrays) -> None:
        """Write the format of the job, with a free batch axis, into its output folder."""

    def count(self, x: Arrays) -> tuple[float | None, int | None]:
        """Floating-point operations of one call, and floating-point weights; None: they cannot be counted."""


def load(job: NetworkJob) -> Network:
    """The network of a job, on its device."""
    network: Network = importlib.import_module(FRAMEWORKS[job.fields.framework]).load(job)
    return network


def outputs_by_name(outputs: Any, names: list[str]) -> dict[str, Any]:
    """The outputs of a call: a mapping, or one value or several in the interface's order."""
    if isinstance(outputs, dict):
        return {name: outputs[name] for name in names}
    values = outputs if isinstance(outputs, tuple | list) else (outputs,)
    return dict(zip(names, values, strict=True))
