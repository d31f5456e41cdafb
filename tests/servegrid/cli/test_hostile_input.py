"""What a hostile user, or a careless script, may write on the command line: one line that says where and
what, exit code 2, and nothing is left behind. The command runs in this process, for it takes milliseconds."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, get_args

import polars as pl
import pytest
from prefect.exceptions import ParameterTypeError

from flows.sweep import sweep
from servegrid.campaign.results import Writer
from servegrid.campaign.tables import last_wall_s
from servegrid.domain.errors import UserError
from servegrid.domain.root import ROOT
from servegrid.plan.options import SweepOptions, _flag

Run = Callable[..., tuple[int, str]]
ONE_LINE = "one line that names the option and what to write; exit code 2; nothing is written"


def refusal(servegrid: Run, home: Path, *words: str) -> str:
    """The one line by which the command refuses these words."""
    code, output = servegrid(*words)
    lines = output.splitlines()
    assert (code, len(lines)) == (2, 1), output[:2000]
    assert not home.exists()
    assert len(output) < 1500
    return lines[0]


TEXTS = {
    "a path that leads up": "../../etc/passwd",
    "a path from the root": "/no/such/place",
    "spaces": "a b",
    "a newline": "a\nb",
    "letters beyond ASCII": "ünï模型",
    "300 characters": "x" * 300,
    "nothing": "",
    "a text's direction turned": "\u202elmth.",
    "an option's dash": "-rf",
    "markup of the terminal": "[bold]x[/]",
    "HTML": "<script>alert(1)</script>",
    "a shell's substitution": "$(touch hacked)",
    "a terminal's escape": "\x1b[2J",
}
FREE = {"queue"}
"""Prefect's names of queues may be any text that can be printed."""


def texts() -> list[str]:
    """The options that take a text: all but flags and numbers."""
    kinds = {name: field.annotation for name, field in SweepOptions.model_fields.items()}
    return [name for name, kind in kinds.items() if not {bool, int, float} & set(types_in(kind))]


def types_in(kind: Any) -> Iterator[Any]:
    """A type and those that it is made of."""
    yield kind
    for part in get_args(kind):
        yield from types_in(part)


@pytest.mark.parametrize("kind", TEXTS)
@pytest.mark.fault("Inputs: names and paths", ONE_LINE, what="an option's value has")
def test_hostile_text_in_every_option(kind: str, servegrid: Run, home: Path, happened: Any) -> None:
    names = texts()
    assert {"models", "onnx", "params", "slo", "url"} < set(names)
    for name in names:
        if name in FREE and TEXTS[kind].isprintable() and TEXTS[kind]:
            continue
        flag = _flag(name)
        needed = {"shapes": ["--onnx", "x.onnx"], "samples": ["--onnx", "x.onnx"], "queue": ["--workers"]}
        needed |= {"name": ["--onnx", "x.onnx"], "signature": ["--savedmodel", "x"]}
        server = ["--server", "remote", "--url", "grpcs://h:1"]
        needed |= {"ca_file": server, "headers_file": server}
        message = refusal(servegrid, home, "plan", f"{flag}={TEXTS[kind]}", *needed.get(name, []))
        named = (name, flag, f"unknown {flag.strip('-')}", "unknown GPU profile", f"{name}.0", "server")
        assert any(word in message for word in named) or name in (
            "formats",
            "shapes",
            "samples",
            "signature",
        ), message
    happened(message)


PARAMETERS = {
    "no day": ("x=2020-99-99", None),
    "nested too deep": ("x=" + "[" * 5000, None),
    "a list": ("x=[1]", "expected NAME=VALUE"),
    "an object of Python": ("x=!!python/object/apply:os.system ['touch hacked']", None),
    "an alias of itself": ("x=&a [*a]", None),
    "no number": ("x=.nan", "expected NAME=VALUE"),
    "no bound": ("x=.inf", "expected NAME=VALUE"),
    "null": ("x=null", "expected NAME=VALUE"),
    "no name": ("=1", "expected NAME=VALUE"),
    "a path as name": ("../x=1", "expected NAME=VALUE"),
    "a sentence as name": ("a b=1", "expected NAME=VALUE"),
    "a long path": ("x=/" + "a" * 300, None),
    "an axis that is no number": ("max_seq_length=long", "a whole number"),
}


@pytest.mark.parametrize("kind", PARAMETERS)
@pytest.mark.fault(
    "Inputs: parameters",
    "a plain text, or one line that says what a parameter looks like",
    what="--param with",
)
def test_hostile_parameter(kind: str, servegrid: Run, home: Path, happened: Any) -> None:
    text, expected = PARAMETERS[kind]
    if expected:
        message = refusal(servegrid, home, "plan", "--param", text)
        assert "--param" in message and expected in message
        happened(message)
    else:
        code, output = servegrid("plan", "--param", text)
        assert code == 0, output[-2000:]
        assert not home.exists()
        happened("it is a text")
    assert not Path("hacked").exists()


@pytest.mark.parametrize("kind", [k for k in TEXTS if k != "nothing"])
@pytest.mark.fault("Inputs: names and paths", ONE_LINE, what="a campaign, or a cell, is called")
def test_hostile_name_of_a_campaign_or_cell(
    kind: str, servegrid: Run, home: Path, tmp_path: Path, happened: Any
) -> None:
    text = TEXTS[kind]
    for words in (
        ["report", "--", text],
        ["bundle", f"--campaign={text}", "--", "cell", str(tmp_path / "bundle")],
        ["compare", "--", text, text],
        ["sweep", f"--resume={text}"],
    ):
        message = refusal(servegrid, home, *words)
        assert "campaign" in message or "too long" in message, message
    for words in (["why", "--", text], ["bundle", "--", text, str(tmp_path / "bundle")]):
        assert "unknown cell" in refusal(servegrid, home, *words)
    assert not (tmp_path / "bundle").exists()
    happened(message)


def test_time_that_is_not_finite_is_refused(servegrid: Run, home: Path) -> None:
    for text in ("inf", "nan"):
        assert "window_s" in refusal(servegrid, home, "plan", "--window-s", text)


DAMAGED = {"empty": b"", "cut off": b"PAR1\x15\x04", "text": b"model,verdict\n", "binary": bytes(range(256))}


@pytest.mark.parametrize("kind", [*DAMAGED, "other columns' types"])
@pytest.mark.fault("Inputs: tables of a campaign", "one line that names the file", what="a parquet file is")
def test_damaged_table(kind: str, servegrid: Run, home: Path, happened: Any) -> None:
    folder = home / "results" / "old"
    folder.mkdir(parents=True)
    for name in ("cells", "measurements"):
        if kind in DAMAGED:
            (folder / f"{name}.parquet").write_bytes(DAMAGED[kind])
        else:
            pl.DataFrame({"verdict": ["passed"], "wall_s": ["long"]}).write_parquet(
                folder / f"{name}.parquet"
            )
    code, output = servegrid("compare", "old", "old")
    assert (code, len(output.splitlines())) == (2, 1), output
    assert str(folder / "cells.parquet") in output
    assert "servegrid report" in output
    happened(output)
    assert last_wall_s(home / "results") == {}, "a plan does without"


@pytest.mark.parametrize("text", ["", "{", "[]", "{}", '{"options": 3}', "\x00"], ids=repr)
@pytest.mark.fault("Inputs: tables of a campaign", "one line that names the file", what="campaign.json is")
def test_damaged_campaign(text: str, servegrid: Run, home: Path, happened: Any) -> None:
    folder = home / "results" / "old"
    Writer(folder).append("cell", {"cell": "a", "model": "m", "profile": "cpu", "verdict": "passed"})
    (folder / "campaign.json").write_text(text)
    for words in (["bundle", "a", str(home / "bundle")], ["report", "old"], ["sweep", "--resume", "old"]):
        code, output = servegrid(*words)
        assert (code, len(output.splitlines())) == (2, 1), output
        assert str(folder / "campaign.json") in output and "cannot be read" in output, output
    assert not (home / "bundle").exists()
    happened(output)


WRONG: dict[str, tuple[dict[str, Any], str]] = {
    "another type": ({"options": 3}, "options"),
    "an unknown key": ({"options": {"modles": ["x"]}}, "modles"),
    "a number for a text": ({"options": {"variant": 3}}, "variant"),
    "no models": ({"options": {"models": []}}, "models"),
    "a negative count": ({"options": {"request_count": -1}}, "request_count"),
    "a newline": ({"options": {"onnx": "a\nb"}}, "onnx"),
    "a text for a flag": ({"options": {"workers": "perhaps"}}, "workers"),
    "a list for a campaign": ({"campaign": ["a"]}, "campaign"),
}


@pytest.mark.parametrize("kind", WRONG)
@pytest.mark.fault("Inputs: Prefect's parameters", "the run is refused, the field is named", what="with")
def test_wrong_parameter_of_a_flow(kind: str, happened: Any) -> None:
    given, field = WRONG[kind]
    with pytest.raises(ParameterTypeError, match=field) as caught:
        sweep.validate_parameters({"options": SweepOptions(), "campaign": None, "resume": False} | given)
    happened(caught.value)


@pytest.mark.fault(
    "Inputs: Prefect's parameters",
    "the run is refused, nothing is written",
    what="a campaign's name leads up",
)
def test_flow_with_a_campaign_that_leads_out(
    home: Path, monkeypatch: pytest.MonkeyPatch, happened: Any
) -> None:
    monkeypatch.setenv("SERVEGRID_RESULTS", str(home))
    with pytest.raises(UserError, match=r"\.\./\.\./out") as caught:
        sweep.fn(campaign="../../out")
    happened(caught.value)
    assert not home.exists()


@pytest.fixture
def models(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of models with one, from the template."""
    shutil.copytree(ROOT / "models" / "_template", tmp_path / "models" / "toy")
    monkeypatch.setenv("SERVEGRID_MODELS", str(tmp_path / "models"))
    return tmp_path / "models"


@pytest.mark.parametrize("kind", [k for k in TEXTS if k != "letters beyond ASCII"])
@pytest.mark.fault(
    "Inputs: names and paths", "one line that names file and key; exit code 2", what="a name in model.yaml is"
)
def test_hostile_name_in_a_model(kind: str, servegrid: Run, home: Path, models: Path, happened: Any) -> None:
    """A model's name stands in paths that are written, and replaced."""
    path = models / "toy" / "model.yaml"
    text = path.read_text()
    for old, key in (("name: _template", "name"), ("  tiny:", "variants")):
        assert old in text
        written = json.dumps(TEXTS[kind])
        new = f"name: {written}" if key == "name" else f"  {written}:"
        path.write_text(text.replace(old, new))
        message = refusal(servegrid, home, "plan", "--model-dir", str(models / "toy"))
        assert str(path) in message and key in message and "64 letters" in message
    happened(message)


@pytest.mark.fault(
    "Inputs: names and paths", "shown as it is written", what="a reason has the terminal's markup"
)
def test_markup_in_a_reason_is_shown_as_it_is(
    servegrid: Run, models: Path, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (home / "profiles").mkdir(parents=True)
    monkeypatch.setenv("SERVEGRID_PROFILES", str(home / "profiles"))
    text = (ROOT / "gpu_profiles" / "cpu.yaml").read_text()
    rule = "unsupported:\n  - {format: onnx, reason: 'not [torch] here, [/nor there]'}\n"
    (home / "profiles" / "cpu.yaml").write_text(
        text.replace("unsupported:\n", rule) if "unsupported:" in text else text + rule
    )
    (models / "toy" / "model.yaml").write_text(
        (models / "toy" / "model.yaml").read_text().replace("name: _template", "name: toy")
    )
    code, output = servegrid("plan", "--model", "toy")
    assert code == 0, output
    assert "not [torch] here, [/nor there]" in output
