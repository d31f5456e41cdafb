"""Keeps the cores that this process may use from sleeping, until it is killed.

    python awake.py

On each runs a process of idle priority that only yields: what else has work there goes first, and finds a
core that need not be woken. In a virtual machine waking one takes about 0.1 ms, and a request to Triton wakes
several, one after the other (docs/experiments/cores-awake.md). Exits with 1 when one of the processes ends.

Run as a script with `-S -E`, as `supervise` is, which sees that none of it outlives its owner. It imports
nothing of the project, so that a bundle can hold it.
"""

import contextlib
import ctypes
import os
import signal
import sys
import time
from pathlib import Path

PR_SET_PDEATHSIG = 1  # <sys/prctl.h>
AUTOGROUP = Path("/proc/self/autogroup")  # sched(7)


def main() -> int:
    os.sched_setscheduler(0, os.SCHED_IDLE, os.sched_param(0))
    _yield_to_other_sessions()
    libc = ctypes.CDLL(None)
    for core in sorted(os.sched_getaffinity(0)):
        if os.fork() == 0:
            libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
            os.sched_setaffinity(0, {core})
            while True:
                os.sched_yield()
    pid, status = os.wait()
    code = os.waitstatus_to_exitcode(status)
    print(f"process {pid}, which kept a core awake, ended with {code}", file=sys.stderr)
    return 1


def _yield_to_other_sessions() -> None:
    """Priorities count among the processes of a session only, where the kernel groups them by it; the group
    has a niceness of its own."""
    for _ in range(50):
        with contextlib.suppress(FileNotFoundError):  # it does not group them
            try:
                AUTOGROUP.write_text("19")
            except BlockingIOError:  # the kernel takes one such change in 0.1 s from all users together
                time.sleep(0.1)
                continue
        return


if __name__ == "__main__":
    sys.exit(main())
