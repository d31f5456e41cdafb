"""A .keras file in Keras. No code that it holds is run."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import keras

from servegrid.domain.errors import UnsupportedError
from servegrid.domain.values import Format, Interface
from servegrid.frameworks.fields import NetworkJob, Parameters
from servegrid.frameworks.model_files.model_file import Declared, one_line
from servegrid.frameworks.tensorflow_network import TensorFlowNetwork

FILE = "model.keras"
FORMATS: dict[Format, dict[str, Any]] = {
    "tf-savedmodel": {"export": "tf-savedmodel", "precisions": ["fp32"]},
    "onnx": {"export": "onnx", "precisions": ["fp32", "fp16"]},
    "tf-trt": {"export": "tf-savedmodel", "precisions": ["fp32", "fp16"]},
}
OPSET = 17


class KerasNetwork(TensorFlowNetwork):
    """The file's model, in inference."""

    def __init__(self, path: Path, interface: Interface, parameters: Parameters) -> None:
        read = _parse(path)
        model = keras.Model(read.inputs, read.outputs)  # takes and gives lists
        names = [tensor.name for tensor in read.inputs]

        def call(tensors_by_name: dict[str, Any]) -> Any:
            return model([tensors_by_name[name] for name in names], training=False)

        super().__init__(model, call, interface)


def declared(path: Path, parameters: Parameters) -> tuple[list[Declared], list[Declared], int]:
    """Its inputs by name; its outputs by their keys or by the names of their layers."""
    model = _parse(path)
    inputs = [
        Declared(name=t.name, dtype=str(t.dtype), shape=tuple(-1 if a is None else a for a in t.shape))
        for t in model.inputs
    ]
    return inputs, [Declared(name=name, dtype=None, shape=None) for name in _output_names(model)], OPSET


def copy(path: Path, target: Path) -> None:
    """The file as it is."""
    shutil.copy(path, target)


open_network = KerasNetwork


def load(job: NetworkJob) -> KerasNetwork:
    """The prepared file, always on the CPU: only its outputs are used."""
    return KerasNetwork(job.inputs["prepared"] / FILE, job.fields.interface, job.fields.parameters)


def _parse(path: Path) -> Any:
    """The model as a functional one, whose tensors have names."""
    own_code = "write it with model.export(FOLDER) where its code is, and give --savedmodel FOLDER"
    try:
        model = keras.models.load_model(path, compile=False, safe_mode=True)
        if isinstance(model, keras.Sequential):
            model = keras.Model(model.inputs, model.outputs)
        tensors = model.inputs
    except Exception as error:  # a ZIP's, a layer's or its code's: whatever the content provokes
        if "no defined inputs" in str(error):
            raise UnsupportedError(f"it does not say its inputs: {own_code}") from error
        if "Lambda" in str(error) or "Could not locate class" in str(error):
            raise UnsupportedError(f"it has layers of its own code, which is not run: {own_code}") from error
        raise UnsupportedError(f"not a model that Keras can load: {one_line(error)}") from error
    if not tensors:
        raise UnsupportedError(f"it does not say its inputs: {own_code}")
    return model


def _output_names(model: Any) -> list[str]:
    keys: Any = getattr(model, "_outputs_struct", None)
    return sorted(keys) if isinstance(keys, dict) else list(model.output_names)
