"""The card's facts. There is no card here: NVML's answers are made up, its binding's names are real."""

from __future__ import annotations

import os
import subprocess
import sys
from types import SimpleNamespace
from typing import Any

import pynvml
import pytest

from servegrid.host import gpu_monitor
from servegrid.host.cards import gpu_names
from servegrid.host.gpu_monitor import Sample, facts, sample, watching

STRANGER = 2**30


def look(**changes: Any) -> Sample:
    known = {
        "sm_clock_mhz": 1980,
        "temperature_c": 40,
        "power_w": 300.0,
        "reasons": (),
        "pids": (os.getpid(),),
        "ours": (os.getpid(),),
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
def test_foreign_processes_are_distinguished_from_ours(pids: tuple[int, ...], foreign: int | None) -> None:
    found = facts([sample(library(pids), None, {os.getpid()})])
    assert found is not None
    assert found.foreign_processes == foreign


def test_a_server_that_another_process_started_is_ours() -> None:
    """A container is a child of the engine."""
    pids = (os.getpid(), os.getppid(), STRANGER)
    for server_pid, expected in ((None, 2), (os.getppid(), 1)):
        found = facts([sample(library(pids), None, {os.getpid(), server_pid})])
        assert found is not None and found.foreign_processes == expected


def test_a_load_generator_that_is_gone_after_its_point_was_ours() -> None:
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as generator:
        looks = [sample(library((os.getpid(), generator.pid)), None, {os.getpid()})]
    found = facts(looks)
    assert found is not None and found.foreign_processes == 0


def test_made_up_answers_of_nvml_are_read_by_its_real_names() -> None:
    fake = library((STRANGER,))
    assert sample(fake, None, {os.getpid()}) == look(
        sm_clock_mhz=1500, temperature_c=55, power_w=None, reasons=("hw_thermal",), pids=(STRANGER,), ours=()
    )
    assert all(hasattr(pynvml, name) for name in vars(fake))
    assert set(gpu_monitor.THERMAL) < set(gpu_monitor.REASONS.values())


def library(pids: tuple[int, ...]) -> SimpleNamespace:
    """A stand-in for NVML: a card without a power reading, with these processes on it."""

    def refuse(handle: Any) -> int:
        raise pynvml.NVMLError(pynvml.NVML_ERROR_NOT_SUPPORTED)

    slowed = pynvml.nvmlClocksEventReasonGpuIdle | pynvml.nvmlClocksEventReasonHwThermalSlowdown
    names = {name: getattr(pynvml, name) for name in dir(pynvml) if "Reason" in name or name.isupper()}
    return SimpleNamespace(
        **{
            **names,
            "NVMLError": pynvml.NVMLError,
            "nvmlDeviceGetCurrentClocksEventReasons": lambda handle: slowed,
            "nvmlDeviceGetPowerUsage": refuse,
            "nvmlDeviceGetClockInfo": lambda handle, kind: {pynvml.NVML_CLOCK_SM: 1500}[kind],
            "nvmlDeviceGetTemperature": lambda handle, kind: {pynvml.NVML_TEMPERATURE_GPU: 55}[kind],
            "nvmlDeviceGetComputeRunningProcesses": lambda handle: [SimpleNamespace(pid=pid) for pid in pids],
        }
    )
