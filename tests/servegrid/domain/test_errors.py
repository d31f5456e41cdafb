"""The text and the fields of errors."""

from __future__ import annotations

import pickle

import pytest

from servegrid.domain.errors import ServegridError, StepError, UnsupportedError, UserError, unknown


def test_unknown_name_has_the_nearest_first_and_all_names() -> None:
    error = unknown("format", "onxx", ["ts-trace", "onnx", "onnx-rt"])
    assert isinstance(error, UserError)
    assert str(error) == (
        "unknown format 'onxx': did you mean 'onnx' or 'onnx-rt'? known: onnx, onnx-rt, ts-trace"
    )


def test_unknown_name_far_from_all_has_no_guess() -> None:
    assert str(unknown("format", "zzz", ("onnx",))) == "unknown format 'zzz': known: onnx"


def test_unknown_name_where_nothing_is_known_says_none() -> None:
    assert str(unknown("model", "a", [])) == "unknown model 'a': known: none"


def test_at_most_three_names_are_guessed() -> None:
    message = str(unknown("profile", "a1", ["a10", "a11", "a12", "a13", "a14"]))
    assert message.partition("known:")[0].count("'a1") == 1 + 3


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
