"""The conversion to `tf-trt`, in the environment with TensorRT that the profile names.

Only its refusals have been run: no TensorFlow with TensorRT was available.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import Any

import numpy as np
import tensorflow as tf

from servegrid.domain.arrays import Arrays
from servegrid.domain.conversion import ShapeRange
from servegrid.domain.errors import UnsupportedError
from servegrid.formats import artifacts
from servegrid.formats.fields import EngineJob
from servegrid.formats.savedmodel.session import Session

PRECISION_MODES = {"fp32": "FP32", "fp16": "FP16"}


def convert_tftrt(job: EngineJob) -> None:
    """`model.savedmodel` with engines for the shapes of the job; inputs and outputs keep their types.

    Raises:
        UnsupportedError: this TensorFlow has no TensorRT, or there is no GPU to build on.
        ValueError: the converted model is not its export.
    """
    converter = open_converter(job)
    if not tf.config.list_physical_devices("GPU"):
        raise UnsupportedError(
            "TensorFlow's TensorRT builds engines on an NVIDIA GPU, and TensorFlow sees none"
        )
    converter.convert()
    example, _ = artifacts.read_example(job.inputs["source"])
    converter.build(lambda: sized(example, job.fields.shapes))
    converter.save(str(job.output / "model.savedmodel"))
    artifacts.finish(job, lambda artifact, _: Session(artifact, "GPU"), half=False)


def open_converter(job: EngineJob) -> Any:
    """TensorFlow's converter, with one optimization profile over the range of shapes.

    Raises:
        UnsupportedError: this TensorFlow has no TensorRT.
    """
    try:
        from tensorflow.python.compiler.tensorrt.trt_convert import TrtGraphConverterV2

        return TrtGraphConverterV2(
            input_saved_model_dir=str(job.inputs["source"] / "model.savedmodel"),
            precision_mode=PRECISION_MODES[job.fields.precision],
            use_dynamic_shape=True,
            dynamic_shape_profile_strategy="Range",
            **workspace(job),
        )
    except (ImportError, RuntimeError) as error:
        raise UnsupportedError(
            f"the environment {sys.prefix} has TensorFlow {tf.__version__} without TensorRT ({error}); up to "
            "2.17 there are builds with it"
        ) from error


def workspace(job: EngineJob) -> dict[str, int]:
    """The workspace limit of TensorRT; without one TensorFlow's default holds."""
    size = job.fields.workspace_bytes
    return {"max_workspace_size_bytes": size} if size else {}


def sized(example: Arrays, shapes: dict[str, ShapeRange]) -> Iterator[Arrays]:
    """The example's values in the smallest, the most likely and the largest shape."""
    for end in ("min", "opt", "max"):
        yield {name: np.resize(example[name], getattr(range_, end)) for name, range_ in shapes.items()}
