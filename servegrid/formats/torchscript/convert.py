"""The conversion to `ts-trace` and `ts-script`: a TorchScript module at the wanted precision."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import torch

from servegrid.domain.errors import UnsupportedError
from servegrid.formats import artifacts
from servegrid.formats.torchscript.fields import TorchScriptJob
from servegrid.formats.torchscript.session import Session


def convert_torchscript(job: TorchScriptJob) -> None:
    """`model.pt` at the wanted precision.

    fp16: weights, inputs and outputs. bf16: weights and arithmetic; inputs and outputs stay float32, because
    NumPy has no bfloat16.
    """
    source, target = job.inputs["source"], str(job.output / "model.pt")
    precision = job.fields.precision
    if precision == "fp32":
        shutil.copy(source / "model.pt", target)
    elif precision == "fp16":
        torch.jit.load(str(source / "model.pt")).half().save(target)
    else:
        module = torch.jit.load(str(source / "model.pt")).to(torch.bfloat16)
        wrap = _scripted if job.fields.scripted else _traced
        wrap(module, source).save(target)
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
    return torch.jit.trace(_Float32Io(module).eval(), example)


def _scripted(module: Any, source: Path) -> Any:
    """PyTorch 2.13 cannot trace a call of a scripted module with optional tensors. It can script one, with a
    fixed number of tensors."""
    io = artifacts.read_interface(source)
    if (len(io.inputs), len(io.outputs)) != (1, 1):
        raise UnsupportedError("bf16 of a scripted module needs one input and one output")
    return torch.jit.script(_SingleFloat32Io(module).eval())


class _SingleFloat32Io(torch.nn.Module):  # type: ignore[misc]
    """A scripted bfloat16 module from one float32 tensor to one."""

    def __init__(self, module: Any) -> None:
        super().__init__()
        self.module = module

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y: torch.Tensor = self.module(x.to(torch.bfloat16))
        return y.to(torch.float32)


class _Float32Io(torch.nn.Module):  # type: ignore[misc]  # torch is not typed here
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
