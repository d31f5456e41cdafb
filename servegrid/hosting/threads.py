"""How many threads a session on the CPU computes with: one for each core that it may use.

Only the standard library: this is asked before a framework is imported.
"""

import math
import os
from pathlib import Path

CPUS = Path("/sys/devices/system/cpu")
CGROUPS = Path("/sys/fs/cgroup")
SELF = Path("/proc/self/cgroup")


def limit(instances: int = 1) -> None:
    """Have this process's frameworks use its share of the cores, where that many instances of a model run
    side by side, and wait without spinning.

    PyTorch and TensorFlow read the variables when they are imported, an ONNX session asks `count`. What the
    user has set stays.
    """
    os.environ.setdefault("OMP_NUM_THREADS", str(max(1, cores() // instances)))
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
    os.environ.setdefault("TF_NUM_INTRAOP_THREADS", str(count()))
    os.environ.setdefault("TF_NUM_INTEROP_THREADS", "1")


def count() -> int:
    """Threads that this process computes with: what OMP_NUM_THREADS says, or one for each core."""
    said = os.environ.get("OMP_NUM_THREADS", "").partition(",")[0].strip()  # a list is one of nested levels
    return int(said) if said.isdigit() and int(said) else cores()


def cores() -> int:
    """Cores that this process may use: physical ones, at most what the quota of its control group allows."""
    allowed = {_siblings(cpu) for cpu in os.sched_getaffinity(0)}
    return max(1, min([len(allowed), *_quotas()]))


def _siblings(cpu: int) -> str:
    """The hardware threads of a CPU's core: a second one of a core has no arithmetic units of its own."""
    try:
        return (CPUS / f"cpu{cpu}" / "topology" / "thread_siblings_list").read_text().strip()
    except OSError:
        return str(cpu)


def _quotas() -> list[int]:
    """CPUs' worth of time that the process's control group (version 2) and those above it leave it."""
    try:
        own = SELF.read_text().rpartition("0::/")[2].strip()
    except OSError:
        return []
    found = []
    for folder in (CGROUPS / own, *(CGROUPS / own).parents):
        try:
            most, period = (folder / "cpu.max").read_text().split()
        except (OSError, ValueError):  # there is none
            continue
        if most != "max":
            found.append(math.ceil(int(most) / int(period)))
    return found
