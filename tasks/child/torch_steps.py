"""Steps that import PyTorch: conversion of a TorchScript module to the wanted precision."""

from __future__ import annotations

import shutil

import torch

from tasks.child import artifacts
from tasks.core.build import Job
from tasks.core.errors import UnsupportedError
from tasks.hosting.torchscript_session import Session


def convert_torchscript(job: Job) -> None:
    """`model.pt` at the wanted precision: as exported, or half-precision weights, inputs and outputs."""
    source = job.inputs["source"]
    if job.fields["precision"] == "fp32":
        shutil.copy(source / "model.pt", job.output / "model.pt")
    else:
        torch.jit.load(str(source / "model.pt")).half().save(str(job.output / "model.pt"))
    try:
        artifacts.finish(job, Session)
    except RuntimeError as error:
        if "not implemented for 'Half'" in str(error):
            raise UnsupportedError(f"PyTorch on this CPU: {str(error).splitlines()[-1]}") from error
        raise
