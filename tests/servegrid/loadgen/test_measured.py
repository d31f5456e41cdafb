"""A point is measured alone, and nothing that comes before it counts for it."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from servegrid.domain.values import Endpoint
from servegrid.host import contention, device_locks, gpu_monitor, stage_timer
from servegrid.host.device_locks import host_lock
from servegrid.host.stage_timer import collecting_waits
from servegrid.loadgen import measured
from servegrid.loadgen.base import Point, Target
from servegrid.loadgen.perf_analyzer import run as perf_analyzer
from servegrid.loadgen.reference import Reference
from servegrid.store.site import default_site


@pytest.fixture
def watched(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What happened, in order: when the card and the cores were first looked at, and when it was measured."""
    events: list[str] = []

    def spy(name: str, real: Any) -> Any:
        @contextmanager
        def watching(pid: int | None) -> Iterator[Any]:
            events.append(name)
            with real(pid) as found:
                yield found

        return watching

    monkeypatch.setattr(gpu_monitor, "watching", spy("card", gpu_monitor.watching))
    monkeypatch.setattr(contention, "watching", spy("cores", contention.watching))
    monkeypatch.setattr(perf_analyzer, "measure", lambda *_: events.append("measured"))
    monkeypatch.setattr(measured, "examine", lambda *_: SimpleNamespace())
    return events


def test_waiting_for_another_perf_analyzer_is_outside_what_is_watched(
    watched: list[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    wait_for: Callable[..., Any],
) -> None:
    caplog.set_level("INFO", "servegrid")
    monkeypatch.setattr(stage_timer, "SHORT_S", 0.0)
    monkeypatch.setattr(device_locks, "LOCKS", tmp_path / "locks")
    point = Point.model_construct(shared_memory="system", concurrency=1)
    target = Target.model_construct(
        endpoint=Endpoint.model_construct(server_pid=None, server_log=None),
        reference=Reference.model_construct(),
    )
    waits = []

    def measure() -> None:
        with collecting_waits() as found:
            measured.measure_point("perf_analyzer", point, target, default_site())
        waits.extend(found)

    run = threading.Thread(target=measure)
    with host_lock("perf_analyzer-shared-memory"):
        run.start()
        wait_for(lambda: "perf_analyzer" in caplog.text, 20)
        assert watched == [], "neither card nor cores are looked at while it waits"
    run.join(20)
    assert watched == ["card", "cores", "measured"]
    (wait,) = waits
    assert "perf_analyzer" in wait.what
