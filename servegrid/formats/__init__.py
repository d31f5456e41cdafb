"""What Triton loads: one folder a format, registered here by name."""

from __future__ import annotations

from servegrid.domain.values import Format
from servegrid.formats.aoti.format import AOTI
from servegrid.formats.base import ServingFormat
from servegrid.formats.onnx.format import ONNX
from servegrid.formats.savedmodel.format import TF_SAVEDMODEL, TF_TRT
from servegrid.formats.torchscript.format import TS_SCRIPT, TS_TRACE
from servegrid.formats.trt.format import TRT

FORMATS: dict[Format, ServingFormat] = {
    "ts-trace": TS_TRACE,
    "ts-script": TS_SCRIPT,
    "aoti": AOTI,
    "onnx": ONNX,
    "trt": TRT,
    "tf-savedmodel": TF_SAVEDMODEL,
    "tf-trt": TF_TRT,
}
