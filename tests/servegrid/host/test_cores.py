"""Each card of a host has cores of its own. NVML's answers are made up; the affinity is real."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

import pytest

from servegrid.host import cards, contention
from servegrid.host.cards import pinned, pinned_cores, share


def test_shares_are_equal_and_apart() -> None:
    shares = [share(range(17), number, 4) for number in range(4)]
    assert [len(found) for found in shares] == [4] * 4
    assert len({core for found in shares for core in found}) == 16
    assert [share((0, 1), number, 4) for number in range(4)] == [(0, 1)] * 4


@pytest.fixture
def two_cards(monkeypatch: pytest.MonkeyPatch) -> None:
    if len(os.sched_getaffinity(0)) < 2:
        pytest.skip("there is one core here")
    fake = SimpleNamespace(
        nvmlDeviceGetCount=lambda: 2,
        nvmlDeviceGetHandleByIndex=lambda index: f"GPU-{index}",
        nvmlDeviceGetUUID=str,
    )

    @contextmanager
    def nvml() -> Iterator[Any]:
        yield fake

    monkeypatch.setattr(cards, "nvml", nvml)


def test_processes_of_two_simulated_cards_run_on_different_cores(
    two_cards: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = os.sched_getaffinity(0)
    found = []
    for uuid in ("GPU-0", "GPU-1"):
        monkeypatch.setattr(cards, "card_uuid", lambda uuid=uuid: uuid)
        with pinned():
            command = [sys.executable, "-c", "import os; print(*sorted(os.sched_getaffinity(0)))"]
            text = subprocess.run(command, capture_output=True, text=True, check=True).stdout
            found.append(set(map(int, text.split())))
            assert pinned_cores() == tuple(sorted(found[-1]))
            with contention.watching(None) as loads:
                pass
            assert loads[0].pinned_cores == pinned_cores(), "the row has them"
    assert not found[0] & found[1]
    assert len(found[0]) == len(found[1]) == len(before) // 2
    assert os.sched_getaffinity(0) == before


def test_load_on_the_cores_of_another_simulated_card_is_no_contention(
    two_cards: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    own, other = sorted(os.sched_getaffinity(0))[:2]
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: {own})
    spin = f"import os, time; os.sched_setaffinity(0, {{{other}}})\nprint(1, flush=True)\nwhile True: pass"
    with subprocess.Popen([sys.executable, "-c", spin], stdout=subprocess.PIPE) as process:
        try:
            assert process.stdout
            process.stdout.readline()
            first = contention.cpu_times()
            used = contention.cpu_times()
            while used.at - first.at < 0.5:
                used = contention.cpu_times()
            # All that ran on this core is in the figure, and on one core no more than its time.
            assert used.busy - first.busy <= (used.at - first.at) + 0.05
        finally:
            process.kill()
