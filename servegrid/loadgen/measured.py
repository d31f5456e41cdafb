"""A measured point, and how one is measured."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

from servegrid.domain.errors import StepError
from servegrid.domain.values import Generator, Value
from servegrid.host import contention, gpu_monitor
from servegrid.loadgen.base import Measurement, Point, Target
from servegrid.loadgen.generators import GENERATORS
from servegrid.loadgen.search.points import Mark
from servegrid.loadgen.trust import TrustCard, examine
from servegrid.servers.liveness import naming_a_lost_server
from servegrid.store.site import Site


class PartlyMeasuredError(StepError):
    """A plan broke off. It has no command: the generator's own would find no server."""

    def __init__(self, cause: StepError) -> None:
        super().__init__(str(cause), log=cause.log)
        self.cause = cause


class MeasuredPoint(Value):
    """A point, its measurement and when it was made (ISO 8601, UTC), its trust checks, and its role in the
    plan."""

    batch: int
    concurrency: int | None
    request_rate: float | None = None
    distribution: str | None = None
    measurement: Measurement
    started_at: str
    ended_at: str
    trust: TrustCard
    mark: Mark = Mark()


_kept: ContextVar[list[MeasuredPoint]] = ContextVar("kept")


@contextmanager
def keeping() -> Iterator[list[MeasuredPoint]]:
    """The points measured in the block. They are kept when an error or an interrupt ends it."""
    points: list[MeasuredPoint] = []
    token = _kept.set(points)
    try:
        yield points
    finally:
        _kept.reset(token)


def keep(point: MeasuredPoint) -> None:
    """Add a point to those of the block; outside `keeping` it counts for nothing."""
    _kept.get([]).append(point)


def measure_point(
    generator: Generator, point: Point, target: Target, site: Site
) -> tuple[Measurement, TrustCard]:
    """Measure one point by one load generator, and check how far it can be trusted; the GPU and the host's
    cores are watched meanwhile.

    Raises:
        StepError: the generator failed, or the server is gone.
    """
    endpoint, module = target.endpoint, GENERATORS[generator]
    with (
        naming_a_lost_server(endpoint),
        module.turn(point),  # before the watching begins: idle time is not part of the point
        gpu_monitor.watching(endpoint.server_pid) as looks,
        contention.watching(endpoint.server_pid) as loads,
    ):
        measurement = module.measure(point, target, site)
    return measurement, examine(point, measurement, gpu_monitor.facts(looks), loads[0])
