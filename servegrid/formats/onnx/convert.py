"""Steps that import ONNX: an exported graph, fused for ONNX Runtime or not, at the wanted precision."""

from __future__ import annotations

import json
from pathlib import Path

import onnx
from onnxruntime.transformers import float16

from servegrid.domain.conversion import Fusion, Quantization
from servegrid.formats.onnx import writing
from servegrid.formats.onnx.fusion import fuse
from servegrid.formats.onnx.quantization import quantize
from servegrid.formats.onnx.session import Session
from servegrid.frameworks import artifacts
from servegrid.store.build import Job


def convert_onnx(job: Job) -> None:
    """`model.onnx` at the wanted precision, and `sizes.json`, its bytes and its export's.

    fp32: fused where the job says how. fp16: weights, arithmetic, float inputs and outputs in half.
    int8: weights in int8, what they meet between QuantizeLinear and DequantizeLinear, all else in float.
    """
    source = job.inputs["source"] / "model.onnx"
    target = job.output / "model.onnx"
    if job.fields["precision"] == "int8":
        options = Quantization.model_validate(job.fields["int8"])
        model = quantize(source, options, job.inputs["calibration"] / "samples.npz")
    elif job.fields["precision"] == "fp16":
        model = float16.convert_float_to_float16(onnx.load(str(source)), keep_io_types=False)
    elif "optimize" in job.fields:
        model = fuse(source, Fusion.model_validate(job.fields["optimize"]))
    else:
        model = onnx.load(str(source))
    writing.write(model, str(target))
    _sizes(job, source, target)
    artifacts.finish(job, Session)


def _sizes(job: Job, source: Path, target: Path) -> None:
    """A conversion of a conversion compares itself with the export that both are made of, too."""
    before = source.with_name("sizes.json")
    export = json.loads(before.read_text())["export"] if before.exists() else source.stat().st_size
    size = target.stat().st_size
    (job.output / "sizes.json").write_text(json.dumps({"export": export, "model": size}))
    print(f"model.onnx: {size} bytes, {size / export:.3f} of the export's")
