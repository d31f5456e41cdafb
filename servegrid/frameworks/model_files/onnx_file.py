"""An ONNX file in ONNX Runtime."""

from __future__ import annotations

import math
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
from google.protobuf.message import DecodeError
from onnx.external_data_helper import _get_all_tensors, load_external_data_for_model, uses_external_data

from servegrid.domain.arrays import Arrays
from servegrid.domain.errors import UnsupportedError
from servegrid.domain.values import Format, Interface
from servegrid.frameworks.fields import ExportJob, NetworkJob, Parameters
from servegrid.frameworks.file_plugin import PROTOBUF_LIMIT
from servegrid.frameworks.model_files import onnx_counting
from servegrid.frameworks.model_files.model_file import Declared, one_line
from servegrid.hosting.onnx_options import cpu_options

FILE = "model.onnx"
FORMATS: dict[Format, dict[str, Any]] = {"onnx": {"export": "onnx", "precisions": ["fp32", "fp16"]}}


class OnnxNetwork:
    """The file as it is."""

    def __init__(self, path: Path, interface: Interface, parameters: Parameters) -> None:
        self.path = path
        self.session = onnxruntime.InferenceSession(
            str(path), cpu_options(), providers=["CPUExecutionProvider"]
        )
        self.outputs = [tensor.name for tensor in interface.outputs]

    def run(self, x: Arrays) -> Arrays:
        """One call; arrays by tensor name in and out."""
        return dict(zip(self.outputs, self.session.run(self.outputs, x), strict=True))

    def count(self, x: Arrays) -> tuple[float | None, int | None]:
        """Matrix products and convolutions, by the shapes of the graph's tensors."""
        return onnx_counting.count(
            onnx.load(str(self.path)), {name: array.shape for name, array in x.items()}
        )

    def export(self, job: ExportJob, x: Arrays) -> None:
        """Copy it: it is what it should become."""
        shutil.copy(self.path, job.output / FILE)


def declared(path: Path, parameters: Parameters) -> tuple[list[Declared], list[Declared], int]:
    """The graph's inputs, without those that have a value, and outputs; its opset."""
    model = _parse(path)
    fixed = {tensor.name for tensor in model.graph.initializer}
    inputs = [_tensor("input", value) for value in model.graph.input if value.name not in fixed]
    opsets = [entry.version for entry in model.opset_import if entry.domain in ("", "ai.onnx")]
    return inputs, [_tensor("output", value) for value in model.graph.output], max(opsets, default=1)


def copy(path: Path, target: Path) -> None:
    """One file, with its external data inside; checked by ONNX Runtime."""
    model = _parse(path)
    outside = [tensor for tensor in _get_all_tensors(model) if uses_external_data(tensor)]
    if outside:
        _check_places(outside)
        if model.ByteSize() + sum(map(_size, outside)) > PROTOBUF_LIMIT:
            raise UnsupportedError("with its external data it is over 2 GB, more than one ONNX file can hold")
        try:
            load_external_data_for_model(model, str(path.parent))
        except Exception as error:  # missing, too short, a link: onnx has no one type for it
            raise UnsupportedError(f"its external data: {one_line(error)}") from error
        onnx.save(model, str(target))
    else:
        shutil.copy(path, target)
    try:
        onnxruntime.InferenceSession(str(target), providers=["CPUExecutionProvider"])
    except Exception as error:  # its exceptions share no type
        version = onnxruntime.__version__
        raise UnsupportedError(f"ONNX Runtime {version} cannot run it: {one_line(error)}") from error


open_network = OnnxNetwork


def load(job: NetworkJob) -> OnnxNetwork:
    """The prepared file, always on the CPU: only its outputs are used."""
    return OnnxNetwork(job.inputs["prepared"] / FILE, job.fields.interface, job.fields.parameters)


def _parse(path: Path) -> Any:
    try:
        model = onnx.load(str(path), load_external_data=False)
    except DecodeError as error:
        raise UnsupportedError("not an ONNX model") from error
    if not model.ir_version or not model.graph.output:
        raise UnsupportedError("not an ONNX model: it has no graph")
    return model


def _check_places(tensors: list[Any]) -> None:
    for tensor in tensors:
        place = next((entry.value for entry in tensor.external_data if entry.key == "location"), "")
        if Path(place).name != place:
            raise UnsupportedError(
                f"its external data: weight {tensor.name!r} is in {place!r}; it must be in the file's folder"
            )


def _size(tensor: Any) -> int:
    """Bytes of a tensor."""
    item = np.dtype(onnx.helper.tensor_dtype_to_np_dtype(tensor.data_type)).itemsize
    return int(math.prod(tensor.dims) * item)


def _tensor(kind: str, value: Any) -> Declared:
    if not value.type.HasField("tensor_type"):
        raise UnsupportedError(f"{kind} {value.name!r} is a {value.type.WhichOneof('value')}, not a tensor")
    tensor = value.type.tensor_type
    if tensor.elem_type == onnx.TensorProto.STRING:
        dtype = "string"
    else:
        dtype = np.dtype(onnx.helper.tensor_dtype_to_np_dtype(tensor.elem_type)).name
    if not tensor.HasField("shape"):
        return Declared(name=value.name, dtype=dtype, shape=None)
    axes = tuple(axis.dim_value if axis.HasField("dim_value") else -1 for axis in tensor.shape.dim)
    return Declared(name=value.name, dtype=dtype, shape=axes)
