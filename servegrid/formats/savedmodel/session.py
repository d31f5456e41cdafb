"""TensorFlow SavedModel session of the hosted runtime."""

from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf

Array = np.ndarray[Any, Any]


class Session:
    """The default signature of `model.savedmodel` on one device.

    TensorFlow captures no CUDA graphs, so `cuda_graph` changes nothing.
    """

    def __init__(self, artifact: Path, kind: str, device: int = 0, cuda_graph: bool = False) -> None:
        gpus = tf.config.list_physical_devices("GPU")
        if kind == "GPU" and not gpus:
            raise RuntimeError("TensorFlow sees no GPU: is a tensorflow build with CUDA installed?")
        tf.config.set_visible_devices([gpus[device]] if kind == "GPU" else [], "GPU")
        self._model = tf.saved_model.load(str(artifact / "model.savedmodel"))  # keeps the variables alive
        self._call = self._model.signatures["serving_default"]

    def run(self, inputs: dict[str, Array]) -> dict[str, Array]:
        """One batch; arrays by tensor name, batch first."""
        answer = self._call(**{name: tf.constant(array) for name, array in inputs.items()})
        return {name: value.numpy() for name, value in answer.items()}
