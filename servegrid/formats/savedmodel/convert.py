"""The conversion to `tf-savedmodel`: the export as it is."""

from __future__ import annotations

import shutil

from servegrid.formats import artifacts
from servegrid.formats.fields import ConvertJob
from servegrid.formats.savedmodel.session import Session


def convert_savedmodel(job: ConvertJob) -> None:
    """`model.savedmodel`, copied: fp32 is its only precision."""
    shutil.copytree(job.inputs["source"] / "model.savedmodel", job.output / "model.savedmodel")
    artifacts.finish(job, Session)
