"""What an exported or converted artifact holds beside the model file.

`interface.json` says what its inputs and outputs are; `example.npz` holds two samples
(`x/<input>`) and the framework's answers to them (`y/<output>`).
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from tasks.arrays import Arrays, alike
from tasks.core.build import Job
from tasks.core.values import Interface, Tensor


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
    """The tensors with the data types that the arrays really have."""
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


def largest_difference(outputs: Arrays, expected: Arrays) -> dict[str, float]:
    """Largest absolute difference of each output; raises ValueError where one is not finite."""
    found = {}
    for name, want in expected.items():
        if not np.isfinite(outputs[name]).all():
            raise ValueError(f"output {name!r} of the example has NaN or infinite values")
        have, want = alike(outputs[name].astype(np.float64), want.astype(np.float64))
        found[name] = float(np.abs(have - want).max(initial=0.0))
    return found


def finish(job: Job, run: Callable[[Arrays], Arrays]) -> None:
    """Prove a converted model on the export's example, and write its interface.

    fp16: the float inputs are half, too, and the outputs are what the model gives.

    Raises:
        ValueError: an output is further off than the spec's `convert.tolerance` allows, or not finite.
    """
    source = job.inputs["exported"]
    interface = read_interface(source)
    x, expected = read_example(source)
    if job.fields["precision"] == "fp16":
        x = {name: array.astype(_half(array.dtype)) for name, array in x.items()}
    outputs = run(x)
    for name, difference in largest_difference(outputs, expected).items():
        print(f"{name}: at most {difference:.2g} from the export")
    tolerance = job.fields["tolerance"]
    if tolerance:
        for name, want in expected.items():
            have, want = alike(outputs[name].astype(np.float64), want.astype(np.float64))
            allowed = tolerance["absolute"] + tolerance["relative"] * np.abs(want)
            over = float((np.abs(have - want) - allowed).max(initial=0.0))
            if over > 0:
                raise ValueError(
                    f"output {name!r} of the converted model: {over:.3g} beyond its convert.tolerance"
                )
    converted = Interface(
        inputs=with_dtypes(interface.inputs, x), outputs=with_dtypes(interface.outputs, outputs)
    )
    write_interface(job.output, converted)


def _half(dtype: np.dtype[Any]) -> np.dtype[Any]:
    return np.dtype(np.float16) if np.issubdtype(dtype, np.floating) else dtype
