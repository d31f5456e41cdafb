"""How a campaign ends, by what became of its cells."""

from __future__ import annotations

from pathlib import Path

import pytest

from flows.sweep import final_state
from servegrid.campaign.campaign import create
from servegrid.campaign.results import Writer
from servegrid.plan.options import SweepOptions
from servegrid.store.site import default_site
from tasks.planning import plan

OPTIONS = SweepOptions(
    models=("bert_large_qa",), formats=("onnx",), accelerators=("none",), precisions=("fp32", "fp16")
)
GOES_ON = "; `servegrid sweep --resume c` goes on"


@pytest.mark.parametrize(
    ("verdicts", "completed", "message"),
    [
        (("passed", "passed"), True, "campaign c: 2 passed"),
        (("passed", "unsupported"), True, "campaign c: 1 passed, 1 unsupported"),
        (("passed", "error"), False, "campaign c: 1 error, 1 passed"),
        (("passed", "failed_accuracy"), False, "campaign c: 1 failed_accuracy, 1 passed"),
        (("passed", "skipped"), False, f"campaign c: 1 passed, 1 skipped{GOES_ON}"),
        (("passed",), False, f"campaign c: 1 passed, 1 without a row (LOST){GOES_ON}"),
        ((), False, f"campaign c: 2 without a row (LOST){GOES_ON}"),
    ],
)
def test_campaign_is_completed_when_no_cell_failed_or_is_left(
    tmp_path: Path, verdicts: tuple[str, ...], completed: bool, message: str
) -> None:
    folder = tmp_path / "c"
    plans = plan(OPTIONS, default_site())
    kept = [entry.kept for entry in plans]
    keys = [key for entry in kept for key in entry.keys]
    assert len(keys) == 2
    create(folder, OPTIONS, kept)
    for (cell, profile), verdict in zip(keys, verdicts, strict=False):
        Writer(folder).append("cell", {"cell": cell, "profile": profile, "verdict": verdict})
    state = final_state(folder)
    assert state.is_completed() == completed
    lost = ", ".join(sorted(f"{cell} on cpu" for cell, _ in keys[len(verdicts) :]))
    assert state.message == message.replace("LOST", lost)
