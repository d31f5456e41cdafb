"""Steps that import TensorFlow: a SavedModel as it is served."""

from __future__ import annotations

import shutil

from servegrid.formats.savedmodel.session import Session
from servegrid.frameworks import artifacts
from servegrid.store.build import Job


def convert_savedmodel(job: Job) -> None:
    """`model.savedmodel` as exported; the spec lists no other precision for it."""
    shutil.copytree(job.inputs["source"] / "model.savedmodel", job.output / "model.savedmodel")
    artifacts.finish(job, Session)
