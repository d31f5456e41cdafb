"""What Triton loads: one module a format, all of one shape, registered here by name."""

from __future__ import annotations

from tasks.core.values import Format
from tasks.formats import aoti, onnx, tf_savedmodel, tf_trt, trt, ts_script, ts_trace
from tasks.formats.base import FormatModule

FORMATS: dict[Format, FormatModule] = {
    "ts-trace": ts_trace,
    "ts-script": ts_script,
    "aoti": aoti,
    "onnx": onnx,
    "trt": trt,
    "tf-savedmodel": tf_savedmodel,
    "tf-trt": tf_trt,
}
