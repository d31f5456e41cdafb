"""The card's facts. There is no card here: NVML's answers are made up, its binding's names are real."""

from __future__ import annotations

import os
from types import SimpleNamespace
from typing import Any

import pynvml
import pytest

from tasks.core import card
from tasks.core.card import Sample, facts, sample, watching
from tasks.core.environment import gpu_names

STRANGER = 2**30


def look(**changes: Any) -> Sample:
    known = {
        "sm_clock_mhz": 1980,
        "temperature_c": 40,
        "power_w": 300.0,
        "reasons": (),
        "pids": (os.getpid(),),
    }
    return Sample.model_validate(known | changes)


def test_without_a_card_there_are_no_facts() -> None:
    if gpu_names():
        pytest.skip("this host has a card")
    with watching() as looks:
        pass
    assert looks == []
    assert facts(looks) is None


def test_looks_are_put_together() -> None:
    looks = [look(reasons=("power_cap",)), look(sm_clock_mhz=1200, temperature_c=80, power_w=500.0)]
    found = facts(looks)
    assert found is not None
    assert (found.sm_clock_min_mhz, found.sm_clock_max_mhz, found.temperature_c) == (1200, 1980, 80)
    assert (found.power_w, found.throttle_reasons, found.foreign_processes) == (400.0, ("power_cap",), 0)


@pytest.mark.parametrize(
    ("pids", "foreign"),
    [((os.getpid(), STRANGER), 1), ((), 0), ((STRANGER,), None)],  # the last: numbers of another name space
)
def test_processes_of_others_are_told_from_ours(pids: tuple[int, ...], foreign: int | None) -> None:
    found = facts([look(pids=pids)])
    assert found is not None
    assert found.foreign_processes == foreign


def test_a_server_that_another_process_started_is_ours() -> None:
    """A container is a child of the engine."""
    looks = [look(pids=(os.getpid(), os.getppid(), STRANGER))]
    for server_pid, expected in ((None, 2), (os.getppid(), 1)):
        found = facts(looks, server_pid)
        assert found is not None and found.foreign_processes == expected


def test_made_up_answers_of_nvml_are_read_by_its_real_names() -> None:
    def refuse(handle: Any) -> int:
        raise pynvml.NVMLError(pynvml.NVML_ERROR_NOT_SUPPORTED)

    slowed = pynvml.nvmlClocksEventReasonGpuIdle | pynvml.nvmlClocksEventReasonHwThermalSlowdown
    names = {name: getattr(pynvml, name) for name in dir(pynvml) if "Reason" in name or name.isupper()}
    fake = SimpleNamespace(
        **{
            **names,
            "NVMLError": pynvml.NVMLError,
            "nvmlDeviceGetCurrentClocksEventReasons": lambda handle: slowed,
            "nvmlDeviceGetPowerUsage": refuse,
            "nvmlDeviceGetClockInfo": lambda handle, kind: {pynvml.NVML_CLOCK_SM: 1500}[kind],
            "nvmlDeviceGetTemperature": lambda handle, kind: {pynvml.NVML_TEMPERATURE_GPU: 55}[kind],
            "nvmlDeviceGetComputeRunningProcesses": lambda handle: [SimpleNamespace(pid=7)],
        }
    )
    assert sample(fake, None) == look(
        sm_clock_mhz=1500, temperature_c=55, power_w=None, reasons=("hw_thermal",), pids=(7,)
    )
    assert all(hasattr(pynvml, name) for name in vars(fake))
    assert set(card.THERMAL) < set(card.REASONS.values())
