"""Steps that import PyTorch: TorchScript modules at the wanted precision, and compiled packages."""

from __future__ import annotations

import json
import os
import shutil
from typing import Any

import torch

from tasks.child import artifacts
from tasks.core.build import Job
from tasks.core.errors import UnsupportedError
from tasks.hosting import aoti_session
from tasks.hosting.torchscript_session import Session


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
        x, _ = artifacts.read_example(source)
        names = [tensor.name for tensor in artifacts.read_interface(source).inputs]
        example = tuple(torch.from_numpy(x[name]) for name in names)
        torch.jit.trace(_BehindFloat32(module).eval(), example).save(target)
    try:
        artifacts.finish(job, Session)
    except RuntimeError as error:
        if "not implemented for 'Half'" in str(error):
            raise UnsupportedError(f"PyTorch on this CPU: {str(error).splitlines()[-1]}") from error
        raise


class _BehindFloat32(torch.nn.Module):  # type: ignore[misc]  # torch is not typed here
    """A bfloat16 module whose float inputs and outputs are float32. Traced, it keeps a scripted module's
    control flow."""

    def __init__(self, module: Any) -> None:
        super().__init__()
        self.module = module

    def forward(self, *tensors: torch.Tensor) -> tuple[torch.Tensor, ...]:
        answer = self.module(*(_as(tensor, torch.bfloat16) for tensor in tensors))
        values = answer if isinstance(answer, tuple) else (answer,)
        return tuple(_as(value, torch.float32) for value in values)


def _as(tensor: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    return tensor.to(dtype) if tensor.is_floating_point() else tensor


def compile_package(job: Job) -> None:
    """`model.pt2`, compiled by AOTInductor, and `built_for.json`, the machine that may run it."""
    scratch = job.output / "inductor"
    os.environ["TORCHINDUCTOR_CACHE_DIR"] = str(scratch)  # or it is left in the host's temporary folder
    os.environ["TORCHINDUCTOR_COMPILE_THREADS"] = "1"  # no pool of workers that could outlive us
    program = torch.export.load(str(job.inputs["source"] / "model.pt2"))
    torch._inductor.aoti_compile_and_package(program, package_path=str(job.output / "model.pt2"))
    shutil.rmtree(scratch, ignore_errors=True)
    machine = json.dumps(job.fields["machine"], indent=1)
    (job.output / aoti_session.MACHINE).write_text(machine, encoding="utf-8")
    artifacts.finish(job, aoti_session.Session)
