"""The conversion to `onnx`: a graph at the wanted precision, fused for ONNX Runtime where the model asks."""

from __future__ import annotations

import json
from pathlib import Path

import onnx
from onnxruntime.transformers import float16

from servegrid.formats import artifacts
from servegrid.formats.onnx import writing
from servegrid.formats.onnx.fields import OnnxJob
from servegrid.formats.onnx.fusion import fuse
from servegrid.formats.onnx.quantization import quantize
from servegrid.formats.onnx.session import Session


def convert_onnx(job: OnnxJob) -> None:
    """`model.onnx` at the wanted precision, and `sizes.json`: bytes of the model and of its export.

    fp32: fused where the job has options for it. fp16: weights, arithmetic, float inputs and outputs.
    int8: weights in int8, their operators' inputs quantized and dequantized, all else in float.
    """
    source = job.inputs["source"] / "model.onnx"
    target = job.output / "model.onnx"
    fields = job.fields
    if fields.precision == "int8":
        assert fields.int8 is not None
        model = quantize(source, fields.int8, job.inputs["calibration"] / "samples.npz")
    elif fields.precision == "fp16":
        model = float16.convert_float_to_float16(onnx.load(str(source)), keep_io_types=False)
    elif fields.optimize:
        model = fuse(source, fields.optimize)
    else:
        model = onnx.load(str(source))
    writing.write(model, str(target))
    _sizes(job, source, target)
    artifacts.finish(job, Session)


def _sizes(job: OnnxJob, source: Path, target: Path) -> None:
    """The sizes; a model that is converted from a converted one is compared with the export of both."""
    before = source.with_name("sizes.json")
    export = json.loads(before.read_text())["export"] if before.exists() else source.stat().st_size
    size = target.stat().st_size
    (job.output / "sizes.json").write_text(json.dumps({"export": export, "model": size}))
    print(f"model.onnx: {size} bytes, {size / export:.3f} of the export's")
