"""Peak memory of a process and of what it started."""

from __future__ import annotations

import subprocess
import sys

from servegrid.host.memory import peak_bytes

GROW = """
import subprocess, sys
taken = b"x" * 100_000_000
del taken
if sys.argv[1] == "parent":
    subprocess.run([sys.executable, "-c", sys.argv[2], "child", ""], stdin=sys.stdin)
else:
    print("ready", flush=True)
    sys.stdin.read()
"""


def test_peak_counts_a_process_and_its_children_after_they_gave_memory_back() -> None:
    process = subprocess.Popen(
        [sys.executable, "-c", GROW, "parent", GROW], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    assert process.stdin is not None and process.stdout is not None
    with process:
        assert process.stdout.readline() == b"ready\n"
        peak = peak_bytes(process.pid)
        process.stdin.close()
    assert 200_000_000 < peak < 300_000_000


def test_process_that_is_gone_has_no_memory() -> None:
    done = subprocess.Popen([sys.executable, "-c", ""])
    done.wait()
    assert peak_bytes(done.pid) is None
