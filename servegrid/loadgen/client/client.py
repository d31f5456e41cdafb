"""The project's own client as a load generator: processes of its own, so that nothing else shares their
interpreters. It measures over gRPC and HTTP, and at request rates too."""

from __future__ import annotations

import shlex
import sys
from contextlib import AbstractContextManager, nullcontext

from servegrid.domain.values import Value
from servegrid.host import proc
from servegrid.host.files import write_atomic
from servegrid.loadgen.base import Measurement, Point, Target, timeout_s
from servegrid.store.site import Site

VERSION = "2"


class MeasurementJob(Value):
    """The job of the client's process, a JSON file."""

    point: Point
    target: Target


def problem(site: Site) -> str | None:
    """Nothing can be missing: it is part of the project."""
    return None


def turn(point: Point) -> AbstractContextManager[None]:
    """It shares nothing with other clients."""
    return nullcontext()


def measure(point: Point, target: Target, site: Site) -> Measurement:
    """Measure one point.

    Raises:
        StepError: the process failed or hung; the server may be gone.
    """
    stem = f"{target.name}.{point.label}.client"
    order, log_path = target.logs / f"{stem}.json", target.logs / f"{stem}.log"
    write_atomic(order, MeasurementJob(point=point, target=target).model_dump_json(indent=1))
    result = order.with_suffix(".result.json")
    args = [sys.executable, "-P", "-m", "servegrid.loadgen.client.process", str(order), str(result)]
    proc.run(args, log_path=log_path, timeout_s=timeout_s(point, target), repeat=shlex.join(args))
    return Measurement.model_validate_json(result.read_text(encoding="utf-8"))
