"""Keeps the cores that this process may use from sleeping, until it is killed.

    python awake.py

On each runs a process of idle priority that only yields: whatever else has work there goes first, and finds a
core that need not be woken. In a virtual machine waking one takes about 0.1 ms, and a request to Triton wakes
several, one after the other (docs/performance.md). A loop that makes no system call would not do: what waits
for the core may then wait for the next tick of the clock.

Run as a script with `-S -E`, as `supervise` is, which sees that none of it outlives its owner.
"""

import ctypes
import os
import signal

PR_SET_PDEATHSIG = 1  # <sys/prctl.h>


def main() -> None:
    os.sched_setscheduler(0, os.SCHED_IDLE, os.sched_param(0))
    first, *others = sorted(os.sched_getaffinity(0))
    libc = ctypes.CDLL(None)
    for core in others:
        if os.fork() == 0:
            libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
            _stay_awake(core)
    _stay_awake(first)


def _stay_awake(core: int) -> None:
    os.sched_setaffinity(0, {core})
    while True:
        os.sched_yield()


if __name__ == "__main__":
    main()
