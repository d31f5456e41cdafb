"""The trust checks, on measurements that fail one each."""

from __future__ import annotations

from typing import Any

import pytest

from servegrid.host.contention import HostLoad
from servegrid.host.gpu_monitor import CardFacts
from servegrid.loadgen.base import Measurement, Point, Window
from servegrid.loadgen.latency import COMPONENTS
from servegrid.loadgen.trust import examine

POINT = Point(batch=4, concurrency=2, request_count=50, shared_memory="system", warm_up=True)
RATE = POINT.model_copy(update={"concurrency": None, "request_rate": 200.0, "distribution": "poisson"})
COOL = CardFacts(
    sm_clock_min_mhz=1700, sm_clock_max_mhz=1980, temperature_c=50, power_w=400.0, throttle_reasons=(),
    foreign_processes=0,
)  # fmt: skip


def found(**changes: Any) -> Measurement:
    """800 inferences/s in batches of 4 from 2 clients: each request takes 10 ms."""
    parts = dict.fromkeys(COMPONENTS, 10.0 / 7)
    ranks = dict.fromkeys(("p50_ms", "p90_ms", "p95_ms", "p99_ms", "avg_ms"), 10.0)
    known = {
        **parts, **ranks, "throughput": 800.0, "request_count": 600, "generator": "client",
        "generator_version": "0", "client_limited": False,
        "windows": tuple(Window(throughput=t, avg_ms=10.0) for t in (1.0, 780.0, 800.0, 820.0)),
    }  # fmt: skip
    return Measurement.model_validate(known | changes)


def test_sound_point_fails_no_check() -> None:
    card = examine(POINT, found(), COOL)
    assert card.failed_checks == ()
    assert (card.repeats, card.card) == (3, COOL)
    assert card.throughput_spread == pytest.approx(0.05)
    assert card.latency_spread == 0.0
    assert card.littles_law_residual == pytest.approx(0.0)
    assert card.component_residual_ms == pytest.approx(0.0)


@pytest.mark.parametrize(
    ("changes", "check"),
    [
        ({"windows": tuple(Window(throughput=t, avg_ms=10.0) for t in (700, 800, 900))}, "stability"),
        ({"throughput": 600.0}, "littles_law"),
        ({"server_queue_ms": 3.0}, "component_sum"),
        ({"network_server_send_recv_ms": -2.0, "server_queue_ms": 20 / 7 + 2.0}, "component_sum"),
        ({"client_limited": True}, "client_limited"),
    ],
)
def test_each_failed_check_is_named(changes: dict[str, Any], check: str) -> None:
    assert examine(POINT, found(**changes)).failed_checks == (check,)


@pytest.mark.parametrize(
    ("changes", "checks"),
    [
        ({"throttle_reasons": ("hw_thermal",)}, ("throttled",)),
        ({"throttle_reasons": ("power_cap",)}, ()),
        ({"foreign_processes": 1}, ("foreign_processes",)),
        ({"foreign_processes": None}, ()),
    ],
)
def test_throttled_or_shared_gpu_is_named(changes: dict[str, Any], checks: tuple[str, ...]) -> None:
    assert examine(POINT, found(), COOL.model_copy(update=changes)).failed_checks == checks


def test_cores_that_others_took_are_named() -> None:
    assert examine(POINT, found(), host=HostLoad(foreign_cores=99.0)).failed_checks == ("contention",)
    assert examine(POINT, found(), host=HostLoad(foreign_cores=0.0, stolen_cores=0.0)).failed_checks == ()


def test_unknown_value_is_null_and_fails_no_check() -> None:
    card = examine(RATE, found(client_limited=None))
    assert (card.littles_law_residual, card.card, card.failed_checks) == (None, None, ())
