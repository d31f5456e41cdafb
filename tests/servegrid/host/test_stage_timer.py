"""Seconds of work by stage."""

from __future__ import annotations

import contextvars
import threading
import time

import pytest

from servegrid.host.stage_timer import collecting, work


def test_work_is_counted_by_stage_and_added_up() -> None:
    with collecting() as stages:
        for _ in range(2):
            with work("export"):
                time.sleep(0.05)
        with work("convert"):
            pass
        time.sleep(0.2)
    assert 0.1 <= stages["export"] < 1
    assert 0 <= stages["convert"] < 0.05
    assert set(stages) == {"export", "convert"}


def test_a_stage_inside_another_is_counted_once() -> None:
    with collecting() as stages, work("online"):
        with work("proof"):
            time.sleep(0.2)
        time.sleep(0.05)
    assert stages["proof"] >= 0.2
    assert 0.05 <= stages["online"] < 0.2


def test_work_that_raises_is_counted() -> None:
    with collecting() as stages:
        with pytest.raises(ValueError, match="inside"), work("export"):
            time.sleep(0.05)
            raise ValueError("inside")
        assert stages["export"] >= 0.05


def test_work_outside_of_collecting_counts_for_nothing() -> None:
    with work("before"):
        pass
    with collecting() as stages:
        pass
    with work("after"):
        pass
    assert stages == {}


def test_each_collection_is_its_own() -> None:
    with collecting() as outer:
        with work("a"), collecting() as inner, work("b"):
            pass
        with work("c"):
            pass
    assert (set(outer), set(inner)) == ({"a", "c"}, {"b"})


def test_work_in_a_thread_with_our_context_is_counted() -> None:
    def do() -> None:
        with work("threaded"):
            pass

    with collecting() as stages:
        thread = threading.Thread(target=contextvars.copy_context().run, args=(do,))
        thread.start()
        thread.join()
    assert set(stages) == {"threaded"}
