"""A step in a child process: its job, its failures, and the command that repeats it."""

from __future__ import annotations

import shlex
import subprocess
from pathlib import Path
from typing import Any

import pytest

from servegrid.domain.errors import StepError, UnsupportedError
from servegrid.store.build import Workplace, build, read_json, run_step
from servegrid.store.site import Site
from servegrid.store.store import BuildRequest

FIELDS = {"variant": "tiny", "parameters": {"length": 64}}


@pytest.fixture
def at(tmp_path: Path) -> Workplace:
    site = Site(
        home=tmp_path / "home",
        models=tmp_path / "models",
        profiles=tmp_path / "profiles",
        sources=tmp_path / "sources",
        results=tmp_path / "results",
    )
    (folder := tmp_path / "models" / "toy").mkdir(parents=True)
    return Workplace(
        site=site, plugin=folder, logs=tmp_path / "logs", profile="test-build", cell="toy-tiny", timeout_s=30
    )


def plug_in(at: Workplace, body: str) -> None:
    """A plug-in whose preparation does this."""
    lines = ["def prepare(variant, output, sources, parameters):", *body.splitlines()]
    (at.plugin / "prepare.py").write_text("\n    ".join(lines) + "\n")


def run(at: Workplace, output: Path, **more: Any) -> None:
    output.mkdir()
    run_step("prepare", fields=FIELDS, inputs={}, output=output, at=at, **more)


def test_step_gets_its_fields_and_files_and_writes_its_output(at: Workplace, tmp_path: Path) -> None:
    plug_in(at, "return {'v': variant, 's': str(sources), 'length': str(parameters['length'])}")
    run(at, tmp_path / "out", files={"sources": tmp_path / "mine"})
    found = read_json(tmp_path / "out" / "parameters.json")
    assert found == {"v": "tiny", "s": str(tmp_path / "mine"), "length": "64"}


def test_artifact_of_a_step_is_built_once(at: Workplace) -> None:
    plug_in(at, "(output / 'weights').write_text('w')\nreturn {}")
    request = BuildRequest(stage="prepare", version=1, fields=FIELDS)
    built = build(request, at)
    assert (at.site.store.path(built) / "weights").read_text() == "w"
    plug_in(at, "raise ValueError('called again')")
    assert build(request, at) == built


def test_failed_step_has_its_log_and_a_command_that_repeats_it(
    at: Workplace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("PYTHONUNBUFFERED", raising=False)  # the traceback still comes last
    plug_in(at, "print('about to fail')\nraise ValueError('bad weights')")
    with pytest.raises(StepError, match=r"(?s)^prepare\b.*\b1\n.*ValueError: bad weights$") as caught:
        run(at, tmp_path / "out")
    assert caught.value.log == str(at.logs / "toy-tiny.prepare.log")
    assert "about to fail" in Path(caught.value.log).read_text()
    again = subprocess.run(shlex.split(caught.value.command), capture_output=True, text=True, check=False)
    assert again.returncode == 1
    assert again.stderr.endswith("ValueError: bad weights\n")
    assert again.stdout == "about to fail\n"


def test_unsupported_step_gives_its_reason(at: Workplace, tmp_path: Path) -> None:
    plug_in(
        at,
        "from servegrid.domain.errors import UnsupportedError\n"
        "print('looking')\nraise UnsupportedError('no such operator in fp16')",
    )
    with pytest.raises(UnsupportedError, match=r"^no such operator in fp16$"):
        run(at, tmp_path / "out")


def test_failed_step_that_prints_another_programs_exit_code_is_still_failed(
    at: Workplace, tmp_path: Path
) -> None:
    plug_in(at, "print('the compiler ended with exit code 3')\nraise SystemExit('no compiler')")
    with pytest.raises(StepError, match="no compiler"):
        run(at, tmp_path / "out")


def test_step_that_hangs_ends_at_its_limit(at: Workplace, tmp_path: Path) -> None:
    plug_in(at, "import time\ntime.sleep(60)")
    (tmp_path / "out").mkdir()
    with pytest.raises(StepError, match=r"^prepare\b.*\b0\.5 s"):
        run_step(
            "prepare",
            fields=FIELDS,
            inputs={},
            output=tmp_path / "out",
            at=at.model_copy(update={"timeout_s": 0.5}),
        )
