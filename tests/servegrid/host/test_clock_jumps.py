"""A clock that is set while a campaign runs: durations and time limits do not follow it."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from servegrid.domain.root import ROOT

SCRIPT = """
import json, sys, threading, time
from pathlib import Path
from servegrid.host import stage_timer as clock
from servegrid.campaign import leases
from servegrid.host import proc
from servegrid.domain.errors import StepError
folder = Path(sys.argv[1])
then = time.time()
time.sleep(1)
days = abs(time.time() - then) / 86400
begun = time.monotonic()
with clock.collecting() as stages, clock.work("sleep"):
    time.sleep(0.3)
found = {"days": days, "stage": stages["sleep"], "slept": time.monotonic() - begun}
begun = time.monotonic()
try:
    proc.run(["sleep", "60"], log_path=folder / "log", timeout_s=0.5)
except StepError as error:
    found |= {"message": str(error), "limit": time.monotonic() - begun}
with leases.holding(folder / "lease", "first", wait_s=0):
    begun = time.monotonic()
    try:
        with leases.holding(folder / "lease", "second", wait_s=0.5):
            pass
    except leases.HeldError:
        found["waited"] = time.monotonic() - begun
print(json.dumps(found))
"""


@pytest.mark.fault(
    "Clocks", "stage times, time limits and waits are as long as ever", what="set by days, every second"
)
def test_durations_do_not_follow_a_clock_that_jumps(
    jumping_clock: dict[str, str], tmp_path: Path, happened: Any
) -> None:
    words = [sys.executable, "-c", SCRIPT, str(tmp_path)]
    env = {**os.environ, **jumping_clock}
    done = subprocess.run(words, env=env, capture_output=True, text=True, timeout=60, cwd=ROOT)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert found["days"] > 1, "the clock jumps"
    assert found["stage"] == pytest.approx(found["slept"], abs=0.05)
    assert 0.3 <= found["slept"] < 5
    assert "ran past its limit of 0.5 s" in found["message"]
    assert 0.5 <= found["limit"] < 10
    assert 0.5 <= found["waited"] < 10
    happened(
        f"0.3 s took {found['stage']:.2f} s, a limit of 0.5 s {found['limit']:.2f} s, a wait of as long "
        f"{found['waited']:.2f} s"
    )


def test_the_time_of_day_is_read_only_for_dates() -> None:
    asks = re.compile(r"\btime\.time\(|\bdatetime\.now\(|\butcnow\(|\btime_ns\(\)")
    files = [path for folder in ("flows", "tasks", "servegrid") for path in (ROOT / folder).rglob("*.py")]
    found = {path.relative_to(ROOT).as_posix() for path in files if asks.search(path.read_text())}
    assert found == {"servegrid/host/stage_timer.py", "servegrid/campaign/campaign.py"}
