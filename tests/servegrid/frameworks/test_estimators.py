"""A TensorFlow Estimator of the published toolkit ends `unsupported`, before its file is run."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

ESTIMATOR = """
import tensorflow as tf
class Hook(tf.estimator.SessionRunHook):  # no TensorFlow of today has this
    pass
def get_estimator(**args):
    return tf.estimator.Estimator(None)
def get_serving_input_receiver_fn(**args):
    return None
"""
LOAD = """
import sys
from pathlib import Path
from types import SimpleNamespace
from servegrid.frameworks.tensorflow_network import load
try:
    load(SimpleNamespace(plugin=Path(sys.argv[1]), fields=SimpleNamespace(device="cpu"), inputs={}))
except Exception as error:
    print(type(error).__name__, error)
"""


def load(folder: Path, model: str) -> str:
    """The error's type and text; TensorFlow is loaded in a process of its own."""
    (folder / "model.py").write_text(model)
    command = [sys.executable, "-W", "ignore", "-c", LOAD, str(folder)]
    return subprocess.run(command, capture_output=True, text=True, timeout=300, check=True).stdout


def test_an_estimator_is_unsupported_with_the_way_to_a_savedmodel(tmp_path: Path) -> None:
    found = load(tmp_path, ESTIMATOR)
    assert found.startswith("UnsupportedError ")
    for named in ("get_estimator", "export_saved_model", "--savedmodel", "2.15"):
        assert named in found


def test_a_model_that_also_has_an_estimator_is_run(tmp_path: Path) -> None:
    found = load(tmp_path, ESTIMATOR + "def get_model():\n    return None\n")
    assert found.startswith("AttributeError ") and "estimator" in found
