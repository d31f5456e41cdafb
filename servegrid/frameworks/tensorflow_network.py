"""A plug-in's network in TensorFlow."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import keras
import tensorflow as tf
from tensorflow.python.framework.convert_to_constants import convert_variables_to_constants_v2

from servegrid.domain.arrays import Arrays
from servegrid.domain.errors import UnsupportedError
from servegrid.domain.values import Interface
from servegrid.frameworks.estimators import REASON, defines_estimator
from servegrid.frameworks.fields import ExportJob, NetworkJob
from servegrid.frameworks.networks import outputs_by_name
from servegrid.frameworks.plugin_steps import arguments
from servegrid.frameworks.plugin_steps import load as load_file


class TensorFlowNetwork:
    """A Keras model, and the call that takes and gives tensors by the interface's names."""

    def __init__(self, model: keras.Model, call: Callable[..., Any], interface: Interface) -> None:
        self.model = model
        names = [tensor.name for tensor in interface.outputs]
        by_name = set(inspect.signature(call).parameters) >= {t.name for t in interface.inputs}
        specs = [
            tf.TensorSpec([None if axis == -1 else axis for axis in t.shape], t.dtype, name=t.name)
            for t in interface.inputs
        ]

        @tf.function(input_signature=specs)  # type: ignore[untyped-decorator]  # it has no types
        def serve(*tensors: Any) -> dict[str, Any]:
            x = dict(zip((spec.name for spec in specs), tensors, strict=True))
            found = outputs_by_name(call(**x) if by_name else call(x), names)
            return {name: tf.identity(value, name=name) for name, value in found.items()}

        self.serve, self.specs = serve, specs

    def run(self, x: Arrays) -> Arrays:
        """One call; arrays by tensor name in and out."""
        found = self.serve(*(tf.constant(x[spec.name]) for spec in self.specs))
        return {name: value.numpy() for name, value in found.items()}

    def export(self, job: ExportJob, x: Arrays) -> None:
        """Write `model.savedmodel` or `model.onnx`."""
        if job.fields.format == "onnx":
            self._export_onnx(job)
        else:
            archive = keras.export.ExportArchive()
            archive.track(self.model)
            archive.add_endpoint("serving_default", self.serve)
            archive.write_out(str(job.output / "model.savedmodel"), verbose=False)

    def count(self, x: Arrays) -> tuple[float | None, int | None]:
        """By TensorFlow's profiler: every operator of the graph that has registered its operations."""
        specs = [tf.TensorSpec(x[s.name].shape, s.dtype, name=s.name) for s in self.specs]
        concrete = tf.function(self.serve.python_function).get_concrete_function(*specs)
        graph = concrete.graph
        if any("PartitionedCall" in operation.type for operation in graph.get_operations()):
            graph = convert_variables_to_constants_v2(concrete).graph  # what it calls is put in its place
        builder = tf.compat.v1.profiler.ProfileOptionBuilder
        options = builder(builder.float_operation()).with_empty_output().build()
        found = tf.compat.v1.profiler.profile(graph, options=options)
        weights = sum(v.shape.num_elements() for v in concrete.variables if v.dtype.is_floating)
        return found.total_float_ops, weights

    def _export_onnx(self, job: ExportJob) -> None:
        import onnx
        import tf2onnx

        graph, _ = tf2onnx.convert.from_function(
            self.serve, input_signature=self.specs, opset=job.fields.opset
        )
        onnx.save(graph, str(job.output / "model.onnx"))


def load(job: NetworkJob) -> TensorFlowNetwork:
    """The Keras model and the call of model.py's `get_model`, on `cpu` or `gpu`, in fp32 without TF32.

    Raises:
        ValueError: TensorFlow sees no GPU.
        UnsupportedError: model.py makes an Estimator.
    """
    if defines_estimator(job.plugin / "model.py"):
        raise UnsupportedError(f"model.py: get_estimator makes {REASON}")
    if job.fields.device == "cpu":
        tf.config.set_visible_devices([], "GPU")
    elif not tf.config.list_physical_devices("GPU"):
        raise ValueError("TensorFlow sees no GPU: is a tensorflow build with CUDA installed?")
    tf.config.experimental.enable_tensor_float_32_execution(False)
    make = load_file(job, "model.py").get_model
    model, call = make(**arguments(job, make))
    return TensorFlowNetwork(model, call, job.fields.interface)
