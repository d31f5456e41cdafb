"""Steps that import PyTorch: TorchScript modules at the wanted precision, and compiled packages."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import torch

from servegrid.domain.errors import UnsupportedError
from servegrid.formats.torchscript.session import Session
from servegrid.frameworks import artifacts
from servegrid.store.build import Job


def convert_torchscript(job: Job) -> None:
    """`model.pt` at the wanted precision.

    fp16: half-precision weights, inputs and outputs. bf16: weights and arithmetic in bfloat16 behind inputs
    and outputs of float32, for NumPy has no bfloat16.
    """
    source, target = job.inputs["source"], str(job.output / "model.pt")
    precision = job.fields["precision"]
    if precision == "fp32":
        shutil.copy(source / "model.pt", target)
    elif precision == "fp16":
        torch.jit.load(str(source / "model.pt")).half().save(target)
    else:
        module = torch.jit.load(str(source / "model.pt")).to(torch.bfloat16)
        behind = _scripted if job.fields.get("scripted") else _traced
        behind(module, source).save(target)
    try:
        artifacts.finish(job, Session)
    except RuntimeError as error:
        if "not implemented for 'Half'" in str(error):
            raise UnsupportedError(f"PyTorch on this CPU: {str(error).splitlines()[-1]}") from error
        raise


def _traced(module: Any, source: Path) -> Any:
    x, _ = artifacts.read_example(source)
    names = [tensor.name for tensor in artifacts.read_interface(source).inputs]
    example = tuple(torch.from_numpy(x[name]) for name in names)
    return torch.jit.trace(_BehindFloat32(module).eval(), example)


def _scripted(module: Any, source: Path) -> Any:
    """PyTorch 2.13 cannot trace a call of a scripted module with optional tensors; it can script one, of as
    many tensors as the code says."""
    io = artifacts.read_interface(source)
    if (len(io.inputs), len(io.outputs)) != (1, 1):
        raise UnsupportedError("a scripted module is brought to bf16 only with one input and one output")
    return torch.jit.script(_OneBehindFloat32(module).eval())


class _OneBehindFloat32(torch.nn.Module):  # type: ignore[misc]
    """A scripted bfloat16 module from one float32 tensor to one."""

    def __init__(self, module: Any) -> None:
        super().__init__()
        self.module = module

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y: torch.Tensor = self.module(x.to(torch.bfloat16))
        return y.to(torch.float32)


class _BehindFloat32(torch.nn.Module):  # type: ignore[misc]  # torch is not typed here
    """A bfloat16 module whose float inputs and outputs are float32."""

    def __init__(self, module: Any) -> None:
        super().__init__()
        self.module = module

    def forward(self, *tensors: torch.Tensor) -> tuple[torch.Tensor, ...]:
        answer = self.module(*(_as(tensor, torch.bfloat16) for tensor in tensors))
        values = answer if isinstance(answer, tuple) else (answer,)
        return tuple(_as(value, torch.float32) for value in values)


def _as(tensor: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    return tensor.to(dtype) if tensor.is_floating_point() else tensor
