"""Threads of a session on the CPU: one for each core that it may use.

Imports only the standard library, because it runs before a framework is imported.
"""

import math
import os
from pathlib import Path

CPUS = Path("/sys/devices/system/cpu")
CGROUPS = Path("/sys/fs/cgroup")
SELF = Path("/proc/self/cgroup")


def limit(instances: int = 1) -> None:
    """Limit this process's frameworks to its share of the cores, and let their idle threads sleep.

    `instances` of the model share the cores. PyTorch and TensorFlow read the variables when they are
    imported; an ONNX session calls `count`. Variables that the user has set stay.
    """
    os.environ.setdefault("OMP_NUM_THREADS", str(max(1, cores() // instances)))
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
    os.environ.setdefault("TF_NUM_INTRAOP_THREADS", str(count()))
    os.environ.setdefault("TF_NUM_INTEROP_THREADS", "1")


def count() -> int:
    """Threads that this process computes with: OMP_NUM_THREADS, or one for each core."""
    value = os.environ.get("OMP_NUM_THREADS", "").partition(",")[0].strip()  # a list names nested levels
    return int(value) if value.isdigit() and int(value) else cores()


def cores() -> int:
    """Physical cores that this process may use, within the quota of its control group."""
    allowed = {_siblings(cpu) for cpu in os.sched_getaffinity(0)}
    return max(1, min([len(allowed), *_quotas()]))


def _siblings(cpu: int) -> str:
    """The hardware threads of a CPU's core, which share its arithmetic units."""
    try:
        return (CPUS / f"cpu{cpu}" / "topology" / "thread_siblings_list").read_text().strip()
    except OSError:
        return str(cpu)


def _quotas() -> list[int]:
    """CPU quotas, in cores, of the process's control group (version 2) and of its parents."""
    try:
        own = SELF.read_text().rpartition("0::/")[2].strip()
    except OSError:
        return []
    found = []
    for folder in (CGROUPS / own, *(CGROUPS / own).parents):
        try:
            most, period = (folder / "cpu.max").read_text().split()
        except (OSError, ValueError):  # no quota
            continue
        if most != "max":
            found.append(math.ceil(int(most) / int(period)))
    return found
