"""Texts and fields of errors."""

from __future__ import annotations

import pickle

import pytest

from servegrid.domain.errors import ServegridError, StepError, UnsupportedError, UserError, unknown


def test_error_of_an_unknown_name_lists_the_nearest_and_all_names() -> None:
    error = unknown("format", "onxx", ["ts-trace", "onnx", "onnx-rt"])
    assert isinstance(error, UserError)
    assert str(error) == (
        "unknown format 'onxx': did you mean 'onnx' or 'onnx-rt'? known: onnx, onnx-rt, ts-trace"
    )


def test_error_of_a_name_unlike_all_others_makes_no_guess() -> None:
    assert str(unknown("format", "zzz", ("onnx",))) == "unknown format 'zzz': known: onnx"


def test_error_of_an_unknown_name_says_that_no_name_is_known() -> None:
    assert str(unknown("model", "a", [])) == "unknown model 'a': known: none"


def test_error_suggests_at_most_three_names() -> None:
    said = str(unknown("profile", "a1", ["a10", "a11", "a12", "a13", "a14"]))
    assert said.partition("known:")[0].count("'a1") == 1 + 3


def test_step_error_keeps_log_and_command_when_pickled() -> None:
    error = pickle.loads(pickle.dumps(StepError("it\nfailed", log="/a.log", command="do it")))
    assert (type(error), str(error), error.log, error.command) == (
        StepError,
        "it\nfailed",
        "/a.log",
        "do it",
    )


@pytest.mark.parametrize("kind", [UserError, UnsupportedError, StepError])
def test_everything_raised_on_purpose_has_one_base(kind: type[ServegridError]) -> None:
    assert issubclass(kind, ServegridError)
    assert str(pickle.loads(pickle.dumps(kind("why")))) == "why"
