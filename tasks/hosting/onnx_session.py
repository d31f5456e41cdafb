"""ONNX Runtime session of the hosted runtime."""

from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime

Array = np.ndarray[Any, Any]

PROVIDERS = {"CPU": "CPUExecutionProvider", "GPU": "CUDAExecutionProvider"}


class Session:
    """`model.onnx` on one device."""

    def __init__(self, artifact: Path, kind: str) -> None:
        wanted = PROVIDERS[kind]
        self._session = onnxruntime.InferenceSession(str(artifact / "model.onnx"), providers=[wanted])
        used = self._session.get_providers()[0]
        if used != wanted:  # ONNX Runtime falls back to the CPU without an error
            raise RuntimeError(f"ONNX Runtime uses {used}, not {wanted}: is onnxruntime-gpu installed?")
        self._outputs = [output.name for output in self._session.get_outputs()]

    def run(self, inputs: dict[str, Array]) -> dict[str, Array]:
        """One batch; arrays by tensor name, batch first."""
        return dict(zip(self._outputs, self._session.run(self._outputs, inputs), strict=True))
