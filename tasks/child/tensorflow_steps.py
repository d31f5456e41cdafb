"""Steps that import TensorFlow: a SavedModel as it is served."""

from __future__ import annotations

import shutil

import tensorflow as tf

from tasks.arrays import Arrays
from tasks.child import artifacts
from tasks.core.build import Job


def convert_savedmodel(job: Job) -> None:
    """`model.savedmodel` as exported; the spec lists no other precision for it."""
    target = job.output / "model.savedmodel"
    shutil.copytree(job.inputs["exported"] / "model.savedmodel", target)
    model = tf.saved_model.load(str(target))
    call = model.signatures["serving_default"]

    def run(x: Arrays) -> Arrays:
        answer = call(**{name: tf.constant(array) for name, array in x.items()})
        return {name: value.numpy() for name, value in answer.items()}

    artifacts.finish(job, run)
