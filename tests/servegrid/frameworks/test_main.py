"""The one entry of the child processes: what it does when a step is over."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from servegrid.domain.root import ROOT
from servegrid.store.build import Job

PREPARE = """
{imports}
def prepare(variant, output, sources, parameters):
    return {{}}
"""


@pytest.mark.parametrize(
    ("loaded", "code"), [(("torch",), 0), (("tensorflow",), 0), (("torch", "tensorflow"), 1)]
)
def test_step_that_loaded_both_frameworks_fails_though_it_ended_well(
    loaded: tuple[str, ...], code: int, tmp_path: Path
) -> None:
    """Empty modules stand in for the frameworks: what counts is that both are loaded."""
    plugin, output, sources = (tmp_path / name for name in ("plugin", "output", "sources"))
    for folder in (plugin, output, sources):
        folder.mkdir()
    for name in loaded:
        (plugin / f"{name}.py").touch()
    (plugin / "prepare.py").write_text(PREPARE.format(imports="\n".join(f"import {n}" for n in loaded)))
    fields = {"variant": "tiny", "parameters": {}}
    job = Job(step="prepare", fields=fields, inputs={"sources": sources}, plugin=plugin, output=output)
    (tmp_path / "job.json").write_text(job.model_dump_json())
    done = subprocess.run(
        [sys.executable, "-P", "-m", "servegrid.frameworks", str(tmp_path / "job.json")],
        cwd=ROOT, capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    assert done.returncode == code, done.stdout + done.stderr
    message = "prepare loaded tensorflow and torch in one process"
    assert (message in done.stdout) == (code == 1)
