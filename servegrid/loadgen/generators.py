"""Every load generator by its name."""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import Protocol

from servegrid.domain.values import Generator
from servegrid.loadgen.base import Measurement, Point, Target
from servegrid.loadgen.client import client
from servegrid.loadgen.perf_analyzer import run as perf_analyzer
from servegrid.store.site import Site


class LoadGenerator(Protocol):
    """The functions of a generator's module."""

    VERSION: str

    def problem(self, site: Site) -> str | None:
        """Why it cannot be used here, with what to do; None when it can."""

    def turn(self, point: Point) -> AbstractContextManager[None]:
        """Waits until no other of its kind on this host disturbs the point, and holds what it shares."""

    def measure(self, point: Point, target: Target, site: Site) -> Measurement:
        """Measure one point; raises StepError."""


GENERATORS: dict[Generator, LoadGenerator] = {"perf_analyzer": perf_analyzer, "client": client}
