"""What Triton loads: one module a format, all of one shape, registered here by name."""

from __future__ import annotations

from servegrid.domain.values import Format
from servegrid.formats.aoti import format as aoti
from servegrid.formats.base import FormatModule
from servegrid.formats.onnx import format as onnx
from servegrid.formats.savedmodel import tf_savedmodel, tf_trt
from servegrid.formats.torchscript import ts_script, ts_trace
from servegrid.formats.trt import format as trt

FORMATS: dict[Format, FormatModule] = {
    "ts-trace": ts_trace,
    "ts-script": ts_script,
    "aoti": aoti,
    "onnx": onnx,
    "trt": trt,
    "tf-savedmodel": tf_savedmodel,
    "tf-trt": tf_trt,
}
