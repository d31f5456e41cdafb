"""Steps that import ONNX: conversion of an exported graph to the wanted precision."""

from __future__ import annotations

import shutil

import onnx
from onnxruntime.transformers import float16

from tasks.child import artifacts
from tasks.core.build import Job
from tasks.hosting.onnx_session import Session


def convert_onnx(job: Job) -> None:
    """`model.onnx` at the wanted precision. fp16: weights, arithmetic, float inputs and outputs in half."""
    source = job.inputs["source"]
    target = job.output / "model.onnx"
    if job.fields["precision"] == "fp32":
        shutil.copy(source / "model.onnx", target)
    else:
        model = onnx.load(str(source / "model.onnx"))
        onnx.save(float16.convert_float_to_float16(model, keep_io_types=False), str(target))
    onnx.checker.check_model(str(target))
    artifacts.finish(job, Session)
