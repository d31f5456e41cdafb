"""The job of a child process: one JSON file, enough to repeat the step by hand."""

from __future__ import annotations

from pathlib import Path
from typing import Generic, TypeVar

from pydantic import SerializeAsAny

from servegrid.domain.values import Value


class Fields(Value):
    """The parts of spec, product and host that one step reads; its cache key holds them."""


FieldsT_co = TypeVar("FieldsT_co", bound=Fields, covariant=True)


class Job(Value, Generic[FieldsT_co]):
    """One run of one step.

    inputs: artifacts and the user's files, by the step's name for them; plugin: the model's folder;
    paths: further folders that the model's files import from; output: an empty folder for the artifact.
    """

    step: str
    fields: SerializeAsAny[FieldsT_co]
    inputs: dict[str, Path]
    plugin: Path
    paths: tuple[Path, ...] = ()
    output: Path
