"""A file of torch.export.save in PyTorch. Loading one may run code that it holds."""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import Any

import torch

from servegrid.domain.arrays import Arrays
from servegrid.domain.errors import UnsupportedError
from servegrid.domain.values import Format, Interface
from servegrid.frameworks.fields import ExportJob, NetworkJob, Parameters
from servegrid.frameworks.model_files.model_file import Declared, one_line
from servegrid.frameworks.model_files.traceable_program import TraceableProgram
from servegrid.frameworks.torch_network import TorchNetwork

FILE = "model.pt2"
FORMATS: dict[Format, dict[str, Any]] = {
    "aoti": {"export": "torch-export", "precisions": ["fp32"]},
    "onnx": {"export": "onnx", "precisions": ["fp32", "fp16"]},
    "ts-trace": {"export": "ts-trace", "precisions": ["fp32", "fp16"]},
}
OPSET = 18
"""The first that PyTorch's exporter of programs writes."""


class TorchExportNetwork(TorchNetwork):
    """The file's program."""

    def __init__(self, path: Path, interface: Interface, parameters: Parameters) -> None:
        self.path, self.program = path, _parse(path)
        super().__init__(self.program.module(check_guards=False), interface)

    def export(self, job: ExportJob, x: Arrays) -> None:
        """Copy it, or make ONNX or a trace of it."""
        if job.fields.format == "torch-export":
            shutil.copy(self.path, job.output / FILE)
        else:
            super().export(job, x)

    def _export_onnx(self, job: ExportJob, x: Arrays) -> None:
        torch.onnx.export(
            self.program,
            (),
            str(job.output / "model.onnx"),
            input_names=self.inputs,
            output_names=self.outputs,
            opset_version=job.fields.opset,
            dynamo=True,  # the exporter that reads a program
            external_data=False,
            verbose=False,
        )

    def _trace(self, x: Arrays) -> Any:
        traced = torch.jit.trace(TraceableProgram(self.module), self._tensors(x), strict=False)
        if self.interface.inputs[0].shape[0] == -1:
            self._check_alone(traced, "trace", x)
        return traced


def declared(path: Path, parameters: Parameters) -> tuple[list[Declared], list[Declared], int]:
    """The program's inputs, -1 for their free axes; its outputs by their keys, or as `output__i`."""
    program = _parse(path)
    names = program.graph_signature.user_inputs
    by_keyword = program.call_spec.in_spec.unflatten(names)[1]
    if by_keyword:
        raise UnsupportedError(
            f"it takes {', '.join(by_keyword)} by keyword: export it with all inputs in torch.export's `args`"
        )
    values = {node.name: node.meta.get("val") for node in program.graph.nodes if node.op == "placeholder"}
    inputs = [_tensor(str(name), values.get(name)) for name in names]
    spec = program.call_spec.out_spec
    count = spec.num_leaves
    keys = list(spec.context) if spec.type is dict else [f"output__{i}" for i in range(count)]
    if len(keys) != count:
        raise UnsupportedError("its outputs are nested; a tensor, a tuple or a dict of tensors can be served")
    return inputs, [Declared(name=str(key), dtype=None, shape=None) for key in keys], OPSET


def copy(path: Path, target: Path) -> None:
    """The file as it is."""
    shutil.copy(path, target)


open_network = TorchExportNetwork


def load(job: NetworkJob) -> TorchExportNetwork:
    """The prepared file, always on the CPU: only its outputs are used."""
    return TorchExportNetwork(job.inputs["prepared"] / FILE, job.fields.interface, job.fields.parameters)


def _parse(path: Path) -> Any:
    os.environ["TORCH_FORCE_WEIGHTS_ONLY_LOAD"] = "1"  # else what is no tensor in it is unpickled (ADR 12)
    try:
        return torch.export.load(str(path))
    except Exception as error:  # a ZIP's, a schema's or an operator's: whatever the content provokes
        raise UnsupportedError(f"not a file of torch.export.save: {one_line(error)}") from error


def _tensor(name: str, value: Any) -> Declared:
    if not isinstance(value, torch.Tensor):
        raise UnsupportedError(f"its input {name!r} is {value!r}, not a tensor")
    shape = tuple(axis if isinstance(axis, int) else -1 for axis in value.shape)
    return Declared(name=name, dtype=str(value.dtype).removeprefix("torch."), shape=shape)
