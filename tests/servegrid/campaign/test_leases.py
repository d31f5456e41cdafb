"""Leases: held by one, seen by all, free as soon as the holder is dead."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from servegrid.campaign.leases import HeldError, holder, holding

HOLDER = """
import sys
from pathlib import Path
from servegrid.campaign.leases import holding
with holding(Path(sys.argv[1]), sys.argv[2], wait_s=0):
    print("held", flush=True)
    sys.stdin.read()
"""


def hold(path: Path, text: str) -> subprocess.Popen[str]:
    """Another process that holds the lease by now."""
    process = subprocess.Popen(
        [sys.executable, "-c", HOLDER, str(path), text],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "held\n"
    return process


def test_lease_is_seen_while_it_is_held_and_free_when_the_holder_was_killed(tmp_path: Path) -> None:
    path = tmp_path / "campaign" / "leader.lock"
    assert holder(path) is None
    process = hold(path, "attempt 1, and a long text")
    assert holder(path) == "attempt 1, and a long text"
    with pytest.raises(HeldError, match="attempt 1"), holding(path, "2", wait_s=0.2):
        pass
    assert holder(path) == "attempt 1, and a long text"
    process.kill()
    process.communicate()
    assert holder(path) is None
    with holding(path, "2", wait_s=0):
        assert holder(path) == "2"
    assert holder(path) is None


def test_holding_waits_for_the_lease(tmp_path: Path) -> None:
    path = tmp_path / "run.lock"
    process = hold(path, "one")
    with pytest.raises(HeldError), holding(path, "two", wait_s=0.1):
        pass
    process.communicate()  # closes its input: the block ends
    with holding(path, "two", wait_s=5):
        assert holder(path) == "two"


def test_holder_does_not_take_the_lease(tmp_path: Path) -> None:
    path = tmp_path / "run.lock"
    with holding(path, "one", wait_s=0):
        pass
    for _ in range(3):
        assert holder(path) is None
    with holding(path, "two", wait_s=0):
        pass
