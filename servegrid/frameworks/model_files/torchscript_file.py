"""A TorchScript file in PyTorch. Loading one runs the code that it holds."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import torch

from servegrid.domain.arrays import Arrays
from servegrid.domain.errors import UnsupportedError
from servegrid.domain.values import Format, Interface
from servegrid.frameworks.fields import ExportJob, NetworkJob, Parameters
from servegrid.frameworks.model_files.model_file import Declared, one_line
from servegrid.frameworks.torch_network import TorchNetwork

FILE = "model.pt"
FORMATS: dict[Format, dict[str, Any]] = {"ts-trace": {"export": "ts-trace", "precisions": ["fp32"]}}
OPSET = 17


class TorchScriptNetwork(TorchNetwork):
    """The file as it is."""

    def __init__(self, path: Path, interface: Interface, parameters: Parameters) -> None:
        super().__init__(_parse(path), interface)
        self.path = path

    def export(self, job: ExportJob, x: Arrays) -> None:
        """Copy it: it is what it should become."""
        shutil.copy(self.path, job.output / FILE)


def declared(path: Path, parameters: Parameters) -> tuple[list[Declared], list[Declared], int]:
    """The arguments of its forward, with types where the graph has them, and `output__i`; no shapes."""
    module = _parse(path)
    schema = module.forward.schema
    types = [value.type() for value in module.graph.inputs()][1:]
    inputs = []
    for argument, type_ in zip(schema.arguments[1:], types, strict=True):
        if type_.kind() == "TensorType":
            dtype = str(type_.dtype()).removeprefix("torch.") if type_.dtype() else None
            inputs.append(Declared(name=argument.name, dtype=dtype, shape=None))
        elif not argument.has_default_value():
            raise UnsupportedError(f"its forward takes {argument.name!r}, a {type_}, not a tensor")
    (answer,) = (value.type for value in schema.returns)
    parts = answer.elements() if answer.kind() == "TupleType" else [answer]
    if any(part.kind() != "TensorType" for part in parts):
        raise UnsupportedError(f"its forward returns {answer}; a tensor or a tuple of tensors can be served")
    outputs = [Declared(name=f"output__{i}", dtype=None, shape=None) for i in range(len(parts))]
    return inputs, outputs, OPSET


def copy(path: Path, target: Path) -> None:
    """The file as it is."""
    shutil.copy(path, target)


open_network = TorchScriptNetwork


def load(job: NetworkJob) -> TorchScriptNetwork:
    """The prepared file, always on the CPU: only its outputs are used."""
    return TorchScriptNetwork(job.inputs["prepared"] / FILE, job.fields.interface, job.fields.parameters)


def _parse(path: Path) -> Any:
    try:
        return torch.jit.load(str(path), map_location="cpu").eval()
    except Exception as error:  # a ZIP's, an unpickler's or the compiler's: whatever the content provokes
        raise UnsupportedError(f"not a file of torch.jit.save: {one_line(error)}") from error
