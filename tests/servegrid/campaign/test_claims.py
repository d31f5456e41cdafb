"""Claims of cells: held by one run, free when it dies, ended once."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from servegrid.campaign.claims import CellState, Claims

KEY = ("cell", "card")
CLAIMER = """
import sys
from pathlib import Path
from servegrid.campaign.claims import Claims
with Claims(Path(sys.argv[1]), 1).take(("cell", "card"), sys.argv[2]) as claim:
    print("claimed" if claim else "refused", flush=True)
    sys.stdin.read()
"""


def claim_in_a_process(folder: Path, run: str) -> subprocess.Popen[str]:
    process = subprocess.Popen(
        [sys.executable, "-c", CLAIMER, str(folder), run],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "claimed\n"
    return process


@pytest.fixture
def claims(tmp_path: Path) -> Claims:
    return Claims(tmp_path, attempt=1)


def test_cell_is_held_by_one_run_and_ends_once(claims: Claims) -> None:
    assert claims.state(KEY) is CellState.OPEN
    with claims.take(KEY, "a") as claim:
        assert claim
        assert claim.dead == ()
        assert claims.state(KEY) is CellState.HELD
        with claims.take(KEY, "b") as second:
            assert second is None
    assert claims.state(KEY) is CellState.ENDED
    with claims.take(KEY, "b") as after:
        assert after is None
    assert claims.state(KEY) is CellState.ENDED


def test_cell_of_a_run_that_was_killed_is_open_and_names_that_run(claims: Claims) -> None:
    for run in ("first", "second"):
        process = claim_in_a_process(claims.folder, run)
        assert claims.state(KEY) is CellState.HELD
        process.kill()
        process.communicate()
        assert claims.state(KEY) is CellState.OPEN
    with claims.take(KEY, "third") as claim:
        assert claim
        assert claim.dead == ("first", "second")
    assert claims.state(KEY) is CellState.ENDED


def test_interrupted_run_opens_its_cell_and_did_not_die(claims: Claims) -> None:
    with pytest.raises(KeyboardInterrupt), claims.take(KEY, "a"):
        raise KeyboardInterrupt
    assert claims.state(KEY) is CellState.OPEN
    with claims.take(KEY, "b") as claim:
        assert claim
        assert claim.dead == ()


def test_next_attempt_begins_anew(claims: Claims) -> None:
    with claims.take(KEY, "a"):
        pass
    following = Claims(claims.folder, attempt=2)
    assert following.state(KEY) is CellState.OPEN
    with following.take(KEY, "b") as claim:
        assert claim
        assert claim.dead == ()


def test_claim_that_a_crash_cut_off_is_open(claims: Claims) -> None:
    with claims.take(KEY, "a"):
        pass
    (path,) = claims.folder.rglob("*.lock")
    path.write_text(path.read_text()[:9])
    assert claims.state(KEY) is CellState.OPEN
    with claims.take(KEY, "b") as claim:
        assert claim


def test_cells_of_two_profiles_are_claimed_apart(claims: Claims) -> None:
    with claims.take(("cell", "one"), "a") as one, claims.take(("cell", "two"), "a") as two:
        assert one
        assert two
