"""`tf-trt`: a SavedModel whose parts that TensorRT can run are engines, by Triton's tensorflow backend.

TensorFlow 2.17 is the last with TensorRT ("this is the last release supporting TensorRT", release notes of
TensorFlow 2.17.0), and the project's own is newer: the conversion runs in an environment that the profile
names. Nobody has run it with this project yet.
"""

from __future__ import annotations

from collections.abc import Mapping

from servegrid.domain.values import Accelerator, ExportFormat, Precision
from servegrid.formats.base import (
    CudaGraphs,
    OtherEnvironment,
    TorchJit,
    any_interface,
    engine_fields,
    every_version,
    of_the_export,
    uncalibrated,
)
from servegrid.formats.savedmodel import tf_savedmodel

EXPORT: ExportFormat = "tf-savedmodel"
PRECISIONS: tuple[Precision, ...] = ("fp32", "fp16")
UNBUILT: Mapping[Precision, str] = {}
TORCH_JIT: TorchJit = "none"
ENGINES = True
LIBRARIES: tuple[str, ...] = ()
TOOLS: tuple[str, ...] = ()
ENVIRONMENT: OtherEnvironment | None = OtherEnvironment(
    needs="TensorFlow up to 2.17 built with TensorRT", libraries=("tensorflow",)
)
FILE = "model.savedmodel"
NATIVE_BACKEND = "tensorflow"
PLATFORM = "tensorflow_savedmodel"
ACCELERATORS: Mapping[Accelerator, tuple[Precision, ...]] = {}
"""None acts on it; the published tables call it accelerated by `trt`, so that a model may list that label."""
SESSION: str | None = None
CUDA_GRAPHS: CudaGraphs = "none"
ON_DEVICE = False
source = of_the_export
calibrated = uncalibrated
build_fields = engine_fields
why_not_native = any_interface
why_not_in_release = tf_savedmodel.why_not_in_release
why_not_built_for = every_version
