"""Steps that import ONNX: conversion of an exported graph to the wanted precision."""

from __future__ import annotations

import shutil
from pathlib import Path

import onnx
import onnxruntime
from onnxruntime.transformers import float16

from tasks.child import artifacts
from tasks.child.artifacts import Arrays
from tasks.core.build import Job
from tasks.core.values import Interface


def convert_onnx(job: Job) -> None:
    """`model.onnx` at the wanted precision. fp16: weights, arithmetic and float outputs in half."""
    source = job.inputs["exported"]
    target = job.output / "model.onnx"
    if job.fields["precision"] == "fp32":
        shutil.copy(source / "model.onnx", target)
    else:
        model = onnx.load(str(source / "model.onnx"))
        onnx.save(float16.convert_float_to_float16(model, keep_io_types=False), str(target))
    onnx.checker.check_model(str(target))
    interface = artifacts.read_interface(source)
    x, expected = artifacts.read_example(source)
    outputs = _run(target, x)
    artifacts.print_differences(outputs, expected)
    converted = artifacts.with_dtypes(interface.outputs, outputs)
    artifacts.write_interface(job.output, Interface(inputs=interface.inputs, outputs=converted))


def _run(model: Path, x: Arrays) -> Arrays:
    session = onnxruntime.InferenceSession(str(model), providers=["CPUExecutionProvider"])
    names = [output.name for output in session.get_outputs()]
    return dict(zip(names, session.run(names, x), strict=True))
