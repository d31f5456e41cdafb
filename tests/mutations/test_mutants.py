"""The table of `make mutations`, and those of its mutants that once passed, on a real server."""

from __future__ import annotations

import runpy
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from servegrid.servers import embedded
from servegrid.store.site import Site

FOLDER = Path(__file__).parent
ONCE_PASSED = (
    "7 everywhere when static",
    "a preferred size",
    "after 1000 calls",
    "row 13",
    "ids through float64",
)
ONCE_FAILED = ("labels sorted by class", "samples in pairs", "unusual: one label", "minus infinity")


def test_there_are_enough_mutants_of_each_kind() -> None:
    table = runpy.run_path(str(FOLDER / "mutants.py"))
    kinds = Counter(mutant.kind for mutant in table["MUTANTS"])
    assert kinds.total() >= 60
    assert min(kinds.values()) >= 5
    assert len(table["UNUSUAL"]) >= 20
    every = [*table["MUTANTS"], *table["UNUSUAL"]]
    assert len({mutant.name for mutant in every}) == len({mutant[2:] for mutant in every}) == len(every)


@pytest.mark.check
def test_mutants_that_once_passed_are_caught_and_right_models_that_failed_pass(site: Site) -> None:
    if problems := embedded.problems(site):
        pytest.skip("; ".join(problems))
    command = [sys.executable, str(FOLDER / "run.py"), "--only", *ONCE_PASSED, *ONCE_FAILED]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stdout + done.stderr
    assert f"{len(ONCE_PASSED)} of {len(ONCE_PASSED)} mutants caught" in done.stdout
    assert f"0 of {len(ONCE_FAILED)} right models failed" in done.stdout
