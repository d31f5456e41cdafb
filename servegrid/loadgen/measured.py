"""A measured point, and how one is measured."""

from __future__ import annotations

from servegrid.domain.errors import StepError
from servegrid.domain.values import Generator, Value
from servegrid.host import gpu_monitor
from servegrid.loadgen import GENERATORS
from servegrid.loadgen.base import Measurement, Point, Target
from servegrid.loadgen.search.points import Mark
from servegrid.loadgen.trust import TrustCard, examine
from servegrid.store.site import Site


class PartlyMeasuredError(StepError):
    """A plan broke off; `points` were measured before. The generator's command, without the server that it
    asked, would repeat nothing."""

    def __init__(self, cause: StepError, points: tuple[MeasuredPoint, ...]) -> None:
        super().__init__(str(cause), log=cause.log)
        self.cause = cause
        self.points = points


class MeasuredPoint(Value):
    """A point, what was measured there and when (ISO 8601, UTC), how far that can be trusted, and what the
    point is in its plan."""

    batch: int
    concurrency: int | None
    request_rate: float | None = None
    distribution: str | None = None
    measurement: Measurement
    started_at: str
    ended_at: str
    trust: TrustCard
    mark: Mark = Mark()


def measure_point(
    generator: Generator, point: Point, target: Target, site: Site
) -> tuple[Measurement, TrustCard]:
    """One point by one load generator, and how far it can be trusted; the card is watched meanwhile.

    Raises:
        StepError: the generator or the server failed.
    """
    with gpu_monitor.watching(target.endpoint.server_pid) as looks:
        measurement = GENERATORS[generator].measure(point, target, site)
    return measurement, examine(point, measurement, gpu_monitor.facts(looks))
