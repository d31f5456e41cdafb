"""A SavedModel in TensorFlow."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import tensorflow as tf

from servegrid.domain.arrays import Arrays
from servegrid.domain.errors import UnsupportedError, unknown
from servegrid.domain.values import Format, Interface
from servegrid.frameworks.fields import ExportJob, NetworkJob, Parameters
from servegrid.frameworks.model_files.model_file import Declared, one_line
from servegrid.frameworks.tensorflow_network import TensorFlowNetwork

FILE = "model.savedmodel"
SIGNATURE = "serving_default"
FORMATS: dict[Format, dict[str, Any]] = {
    "tf-savedmodel": {"export": "tf-savedmodel", "precisions": ["fp32"]},
    "onnx": {"export": "onnx", "precisions": ["fp32", "fp16"]},
    "tf-trt": {"export": "tf-savedmodel", "precisions": ["fp32", "fp16"]},
}
OPSET = 17


class SavedModelNetwork(TensorFlowNetwork):
    """A signature of the folder as it is."""

    def __init__(self, path: Path, interface: Interface, parameters: Parameters) -> None:
        model = _parse(path)  # it owns the variables
        signature = _signature(model, parameters)

        def call(tensors_by_name: dict[str, Any]) -> Any:
            return signature(**tensors_by_name)

        super().__init__(model, call, interface)
        self.path, self.signature = path, signature

    def export(self, job: ExportJob, x: Arrays) -> None:
        """Copy it, or make ONNX of it by tf2onnx; a server takes its default signature, so that is the
        chosen one."""
        if job.fields.format == "onnx":
            super().export(job, x)
        elif self.signature is self.model.signatures.get(SIGNATURE):
            shutil.copytree(self.path, job.output / FILE)
        else:
            tf.saved_model.save(self.model, str(job.output / FILE), signatures={SIGNATURE: self.signature})


def declared(path: Path, parameters: Parameters) -> tuple[list[Declared], list[Declared], int]:
    """Inputs and outputs of its signature."""
    model = _parse(path)  # it owns the variables
    signature = _signature(model, parameters)
    _, inputs = signature.structured_input_signature
    return _tensors(inputs), _tensors(signature.structured_outputs), OPSET


def copy(path: Path, target: Path) -> None:
    """The folder as it is."""
    shutil.copytree(path, target)


open_network = SavedModelNetwork


def load(job: NetworkJob) -> SavedModelNetwork:
    """The prepared folder, always on the CPU: only its outputs are used."""
    return SavedModelNetwork(job.inputs["prepared"] / FILE, job.fields.interface, job.fields.parameters)


def _signature(model: Any, parameters: Parameters) -> Any:
    """The signature that the parameters name; else the default one, or the only one."""
    known = list(model.signatures)
    if not known:
        raise UnsupportedError("it has no signature: save it by tf.saved_model.save(..., signatures=...)")
    name = str(parameters.get("signature") or (known[0] if len(known) == 1 else SIGNATURE))
    if name not in known:
        more = "" if "signature" in parameters else "; give --signature NAME"
        raise UnsupportedError(f"{unknown('signature', name, known)}{more}")
    return model.signatures[name]


def _parse(path: Path) -> Any:
    try:
        return tf.saved_model.load(str(path))
    except Exception as error:  # a protobuf's, a checkpoint's or a graph's: whatever the content provokes
        raise UnsupportedError(f"not a SavedModel that TensorFlow can load: {one_line(error)}") from error


def _tensors(specs: dict[str, Any]) -> list[Declared]:
    return [
        Declared(
            name=name,
            dtype=spec.dtype.name,
            shape=None if spec.shape.rank is None else tuple(-1 if a is None else a for a in spec.shape),
        )
        for name, spec in specs.items()
    ]
