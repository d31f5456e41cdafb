"""What an exported or converted artifact holds beside the model file.

`interface.json` says what its inputs and outputs are; `example.npz` holds two samples
(`x/<input>`) and the framework's answers to them (`y/<output>`).
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from tasks.core.values import Interface, Tensor

Arrays = dict[str, np.ndarray[Any, Any]]


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
        have = outputs[name].astype(np.float64)
        if not np.isfinite(have).all():
            raise ValueError(f"output {name!r} of the example has NaN or infinite values")
        found[name] = float(np.abs(have - want.astype(np.float64)).max(initial=0.0))
    return found


def print_differences(outputs: Arrays, expected: Arrays) -> None:
    """Say how far each output of the example is from the framework's, in the step's log."""
    for name, difference in largest_difference(outputs, expected).items():
        print(f"{name}: at most {difference:.2g} from the framework")
