"""Objectives as users write them."""

from __future__ import annotations

import pytest

from servegrid.domain.errors import UserError
from servegrid.domain.slo import from_option, parse


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
def test_wrong_objective_is_refused_with_an_example(text: str) -> None:
    with pytest.raises(UserError, match=r"--slo .*p99=50ms"):
        from_option(text)
