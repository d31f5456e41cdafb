"""What the conversion to `onnx` reads."""

from __future__ import annotations

from servegrid.domain.conversion import Fusion, Quantization
from servegrid.formats.fields import ConvertFields
from servegrid.store.job import Job


class OnnxFields(ConvertFields):
    """How an fp32 graph is fused, and how an int8 one is quantized."""

    optimize: Fusion | None = None
    int8: Quantization | None = None


OnnxJob = Job[OnnxFields]
