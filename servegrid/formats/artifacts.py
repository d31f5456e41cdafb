"""The files of an exported or converted artifact next to the model file.

interface.json   its inputs and outputs
example.npz      two samples (`x/<input>`) and the framework's outputs for them (`y/<output>`)
margins.json     how far the converted model is from its export on the example
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from servegrid.domain.arrays import Arrays, match
from servegrid.domain.values import NOT_RUN, Interface, Tensor
from servegrid.formats.fields import ConvertJob


class Session(Protocol):
    """Runs an artifact: a format's `session.py` has one."""

    def run(self, inputs: Arrays) -> Arrays:
        """One batch; arrays by tensor name, batch first."""


def read_interface(folder: Path) -> Interface:
    """The artifact's own inputs and outputs."""
    return Interface.model_validate_json((folder / "interface.json").read_text(encoding="utf-8"))


def write_interface(folder: Path, interface: Interface) -> None:
    (folder / "interface.json").write_text(interface.model_dump_json(indent=1), encoding="utf-8")


def read_example(folder: Path) -> tuple[Arrays, Arrays]:
    """Inputs and the framework's outputs of the example."""
    with np.load(folder / "example.npz") as file:
        x = {k[2:]: file[k] for k in file if k.startswith("x/")}
        y = {k[2:]: file[k] for k in file if k.startswith("y/")}
    return x, y


def write_example(folder: Path, x: Arrays, y: Arrays) -> None:
    arrays = {f"x/{k}": v for k, v in x.items()} | {f"y/{k}": v for k, v in y.items()}
    np.savez(folder / "example.npz", allow_pickle=False, **arrays)


def with_dtypes(tensors: tuple[Tensor, ...], arrays: Arrays) -> tuple[Tensor, ...]:
    """The tensors with the data types of the arrays."""
    return tuple(Tensor(name=t.name, dtype=str(arrays[t.name].dtype), shape=t.shape) for t in tensors)


def check_shapes(tensors: tuple[Tensor, ...], arrays: Arrays, where: str) -> None:
    """Raises ValueError where an array is missing or does not have its tensor's shape."""
    for tensor in tensors:
        if tensor.name not in arrays:
            raise ValueError(f"{where}: no {tensor.name!r} (model.yaml names it); found: {', '.join(arrays)}")
        shape = arrays[tensor.name].shape
        fits = len(shape) == len(tensor.shape) and all(
            want in (-1, have) for want, have in zip(tensor.shape, shape, strict=True)
        )
        if not fits:
            raise ValueError(f"{where}: {tensor.name!r}: model.yaml says shape {tensor.shape}, found {shape}")


def finish(
    job: ConvertJob, open_session: Callable[[Path, str], Session], *, half: bool | None = None
) -> None:
    """Run a converted model in its session on the export's example, compare the outputs, and write the files
    of the artifact.

    half: whether float inputs are fp16; by default where the precision is. Outputs have the types that the
    model gives.

    Raises:
        ValueError: an output is not finite, or further off than the spec allows a conversion.
    """
    source = job.inputs["source"]
    interface = read_interface(source)
    x, expected = read_example(source)
    shutil.copy(source / "example.npz", job.output)  # a conversion of this artifact is compared on it, too
    if half is None:
        half = job.fields.precision == "fp16"
    if half:
        x = {name: array.astype(_half(array.dtype)) for name, array in x.items()}
    inputs = with_dtypes(interface.inputs, x)
    write_interface(job.output, Interface(inputs=inputs, outputs=interface.outputs))
    outputs = open_session(job.output, "CPU").run(x)
    check_shapes(interface.outputs, outputs, "the converted model")
    write_interface(job.output, Interface(inputs=inputs, outputs=with_dtypes(interface.outputs, outputs)))
    tolerances = job.fields.tolerances
    found = match(interface.outputs, outputs, expected, tolerances)
    (job.output / "margins.json").write_text(json.dumps([m.model_dump() for m in found]), encoding="utf-8")
    for margin in found:
        print(f"{margin.output}: at most {margin.largest_difference:.2g} from the export")
    failures = [why for margin in found for why in margin.failures(tolerances.of(margin.output))]
    if failures:
        raise ValueError(f"the converted model is not its export: {'; '.join(failures)}")


def not_run(job: ConvertJob, reason: str) -> None:
    """Write the files of a converted model that this host can build but not run: `not_run.txt` with the
    reason, and no `margins.json`. Such an artifact is never served."""
    write_interface(job.output, read_interface(job.inputs["source"]))
    shutil.copy(job.inputs["source"] / "example.npz", job.output)
    (job.output / NOT_RUN).write_text(reason, encoding="utf-8")
    print(f"built, not run: {reason}")


def _half(dtype: np.dtype[Any]) -> np.dtype[Any]:
    return np.dtype(np.float16) if np.issubdtype(dtype, np.floating) else dtype
