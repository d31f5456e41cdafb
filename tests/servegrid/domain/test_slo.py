"""Objectives: parsed from an option, kept as text in JSON."""

from __future__ import annotations

import json

import pytest

from servegrid.domain.errors import UserError
from servegrid.domain.slo import from_option, parse
from servegrid.plan.selection import Selection


@pytest.mark.parametrize(
    ("text", "statistic", "ms"),
    [
        ("p99=50ms", "p99", 50.0),
        ("p50=1.5s", "p50", 1500.0),
        ("p90=800us", "p90", 0.8),
        ("avg=0.5ms", "avg", 0.5),
        (" p95=1s ", "p95", 1000.0),
    ],
)
def test_objective_is_read(text: str, statistic: str, ms: float) -> None:
    assert (parse(text).statistic, parse(text).limit_ms) == (statistic, pytest.approx(ms))


@pytest.mark.parametrize(
    "text", ["50ms", "p98=50ms", "p99=50", "p99=0ms", "p99=-1ms", "p99=1e3ms", "p99 = 50 ms"]
)
def test_other_text_is_refused_with_an_example(text: str) -> None:
    with pytest.raises(UserError, match=r"--slo .*p99=50ms"):
        from_option(text)


@pytest.mark.parametrize("text", ["p99=50ms", "avg=0.01us", "p95=1234567ms", "p90=33.333333ms"])
def test_objective_is_text_in_json_and_comes_back_whole(text: str) -> None:
    options = Selection.model_validate({"slo": text})
    kept = options.model_dump_json(include={"slo"})
    assert json.loads(kept) == {"slo": str(parse(text))}
    assert Selection.model_validate_json(kept).slo == options.slo == parse(text)
    assert Selection.model_json_schema()["$defs"]["Slo"]["type"] == "string", "the form has a text field"
