"""Recommendations: the right points of the right cells, and the certainty of their lead."""

from __future__ import annotations

from collections.abc import Callable

import polars as pl
import pytest

from servegrid.campaign.results import Row
from servegrid.domain.slo import parse
from servegrid.reporting.markdown import document
from servegrid.reporting.recommendation import best, frontier, lead_text, recommendations

Rows = Callable[..., pl.DataFrame]
Frames = tuple[pl.DataFrame, pl.DataFrame]


def test_best_point_of_each_objective_has_its_lead_over_the_next_cell(two: Frames) -> None:
    offline, online, latency = recommendations(*two)
    assert (offline.objective, offline.cell, offline.batch, offline.throughput, offline.p99_ms) == (
        "best offline throughput",
        "a",
        8,
        300.0,
        30.0,
    )
    assert offline.lead and offline.lead.change == pytest.approx(
        0.5
    )  # 300 to 200; the same cell's 100 is no rival
    assert (online.cell, online.concurrency, online.throughput) == ("b", 4, 99.0)
    assert online.lead and online.lead.change == pytest.approx(0.1)
    assert (online.metric, online.served_metric) == ("f1", 0.9)
    assert (latency.cell, latency.concurrency, latency.p99_ms) == ("a", 1, 4.0)
    assert latency.lead and latency.lead.change == pytest.approx(0.5)  # 6 ms are half as much again as 4 ms


@pytest.mark.parametrize(
    "verdict", ["measured", "failed_accuracy", "infeasible", "unsupported", "error", "skipped"]
)
def test_only_a_cell_that_passed_is_chosen(cells: Rows, two: Frames, verdict: str) -> None:
    found = recommendations(cells({"cell": "a", "verdict": verdict}, {"cell": "b"}), two[1])
    assert {c.cell for c in found} == {"b"}
    assert {c.lead for c in found} == {None}


def test_unstable_scenario_of_a_cell_leaves_its_other_scenario_in_the_running(
    cells: Rows, two: Frames
) -> None:
    rows = two[1].with_columns(stable=(pl.col("cell") != "a") | (pl.col("scenario") == "offline"))
    unstable = cells({"cell": "a", "verdict": "unstable"}, {"cell": "b"})
    found = {choice.objective: choice.cell for choice in recommendations(unstable, rows)}
    assert found["best offline throughput"] == "a"
    assert found["lowest online p99 latency"] == "b"
    unproven = unstable.with_columns(served_metric=pl.lit(None, pl.Float64))
    assert {choice.cell for choice in recommendations(unproven, rows)} == {"b"}


BUSY = {"failed_checks": ["client_limited", "contention"]}


def test_a_cell_measured_while_other_programs_ran_is_not_compared(cells: Rows, points: Rows) -> None:
    rows = points(
        {"cell": "a", "throughput": 10.0, "failed_checks": []},
        {"cell": "b", "throughput": 30.0, **BUSY},
        {"cell": "c", "throughput": 9.0},
        {"cell": "c", "throughput": 90.0, "concurrency": 2, **BUSY},
    )
    three = cells({"cell": "a"}, {"cell": "b"}, {"cell": "c"})
    (found,) = (r for r in recommendations(three, rows) if r.objective == "best online throughput")
    assert (found.cell, found.throughput, found.left_out) == ("a", 10.0, ("b",))
    assert found.lead and found.lead.change == pytest.approx(10 / 9 - 1)
    assert lead_text(found).endswith("; not compared, for other programs ran: b")
    (alone,) = (r for r in recommendations(three[:2], rows) if r.objective == "best online throughput")
    assert (alone.cell, alone.lead) == ("a", None)
    assert "undisturbed" in lead_text(alone)


def test_where_other_programs_ran_all_the_time_there_is_no_lead(cells: Rows, points: Rows) -> None:
    rows = points({"cell": "a", "throughput": 10.0, **BUSY}, {"cell": "b", "throughput": 30.0, **BUSY})
    (found,) = (
        r
        for r in recommendations(cells({"cell": "a"}, {"cell": "b"}), rows)
        if r.objective == "best online throughput"
    )
    assert (found.cell, found.lead, found.left_out) == ("b", None, ())
    assert "failed checks: client_limited, contention; no lead" in lead_text(found)


@pytest.mark.parametrize("stable", [False, None])
def test_only_a_stable_point_is_chosen(cells: Rows, points: Rows, stable: bool | None) -> None:
    rows = points(
        {"cell": "a", "throughput": 10.0, "p99_ms": 9.0},
        {"cell": "a", "throughput": 1000.0, "p99_ms": 1.0, "stable": stable},
    )
    assert {(c.throughput, c.p99_ms) for c in recommendations(cells({"cell": "a"}), rows)} == {(10.0, 9.0)}


def test_each_model_has_its_own_recommendations(cells: Rows, points: Rows) -> None:
    both = points({"cell": "a", "throughput": 1.0}, {"cell": "b", "model": "other", "throughput": 9.0})
    found = recommendations(cells({"cell": "a"}, {"cell": "b", "model": "other"}), both)
    assert [(c.model, c.cell, c.lead) for c in found] == [("toy", "a", None)] * 2 + [("other", "b", None)] * 2


def test_nothing_measured_gives_no_recommendation(two: Frames, empty: Frames) -> None:
    assert recommendations(*empty) == []
    assert recommendations(two[0], empty[1]) == []


def test_lead_as_text(two: Frames) -> None:
    first, *_ = recommendations(*two)
    assert lead_text(first) == "+50.0% over the next cell"
    assert lead_text(first.model_copy(update={"lead": None, "rivals": 0})) == "the only cell"


def test_failed_checks_come_before_the_lead(points: Rows, two: Frames) -> None:
    rows = points(
        {
            "cell": "a",
            "throughput": 105.0,
            "failed_checks": ["stability", "throttled", "foreign_processes"],
        },
        {"cell": "b", "throughput": 100.0, "failed_checks": []},
    )
    first, *_ = recommendations(two[0], rows)
    words = "failed checks: throttled, foreign_processes; +5.0% over the next cell"
    assert (first.cell, lead_text(first)) == ("a", words)  # it is named, and ranked as it was measured
    unstable = first.model_copy(update={"stable": False})
    assert lead_text(unstable) == words.replace("; ", "; not stable; ")
    assert first.sentence.endswith(f"({words})")
    assert words in document("c", two[0], rows)
    clean = recommendations(two[0], rows.filter(pl.col("cell") == "b"))
    assert {lead_text(chosen) for chosen in clean} == {"the only cell"}


def test_throughput_within_a_latency_limit_is_an_objective(two: Frames) -> None:
    *_, chosen = recommendations(*two, slo=parse("p99=5ms"))  # no rate was searched
    assert (chosen.objective, chosen.cell) == ("best online throughput, p99 at most 5 ms", "a")
    assert (chosen.throughput, chosen.p99_ms, chosen.lead) == (90.0, 5.0, None)  # b is over the limit
    assert len(recommendations(*two, slo=parse("p99=3ms"))) == 3


def test_highest_rate_within_the_slo_is_an_objective(points: Rows, two: Frames) -> None:
    slo = parse("p99=50ms")
    rate: Row = {"cell": "a", "concurrency": None, "distribution": "poisson", "slo": str(slo)}
    rows = points(
        {
            "cell": "a",
            "concurrency": 2,
            "throughput": 100.0,
            "p99_ms": 20.0,
            "slo": str(slo),
            "slo_best": True,
        },
        rate | {"request_rate": 80.0, "throughput": 79.0, "p99_ms": 40.0, "slo_best": True, "stable": False},
        rate | {"request_rate": 70.0, "throughput": 71.0, "p99_ms": 30.0, "slo_best": False},
        rate | {"request_rate": 90.0, "throughput": 89.0, "p99_ms": 90.0, "slo_best": False},
        rate | {"cell": "b", "request_rate": 40.0, "throughput": 41.0, "p99_ms": 45.0, "slo_best": True},
    )
    found = recommendations(two[0], rows, slo)
    *_, closed, best_rate = found
    assert (closed.throughput, closed.load) == (100.0, ("concurrency", "2"))
    assert best_rate.objective == "highest online request rate, p99 at most 50 ms"
    assert (best_rate.cell, best_rate.request_rate, best_rate.p99_ms) == ("a", 80.0, 40.0)
    assert lead_text(best_rate) == "not stable; 2.0x the next cell"
    assert "batch 1 at 80 requests/s: 79.0 inferences/s, p99 40.00 ms" in best_rate.sentence
    assert "| batch 1, requests/s 80 | 79.0 | 40.00 |" in document("c", two[0], rows, slo)
    assert not any("request rate" in c.objective for c in recommendations(two[0], rows, parse("p99=30ms")))
    assert all(c.request_rate is None for c in recommendations(two[0], rows))


def test_frontier_has_the_best_point_of_every_latency_limit(points: Rows, two: Frames) -> None:
    found = frontier(*two).select("cell", "throughput", "p99_ms").rows()
    assert found == [("b", 99.0, 6.0), ("a", 90.0, 5.0), ("a", 50.0, 4.0)]
    beaten = points(
        {"cell": "a", "throughput": 10.0, "p99_ms": 1.0},
        {"cell": "b", "throughput": 9.0, "p99_ms": 1.0},
        {"cell": "b", "throughput": 20.0, "p99_ms": 0.5, "stable": False},
    )
    assert frontier(two[0], beaten)["cell"].to_list() == ["a"]


def test_each_device_has_its_own_recommendations(cells: Rows, points: Rows) -> None:
    rows = cells({"cell": "a", "profile": "t4"}, {"cell": "a", "profile": "h100"})
    both = points(
        {"cell": "a", "profile": "t4", "throughput": 1.0}, {"cell": "a", "profile": "h100", "throughput": 9.0}
    )
    found = [(c.profile, c.throughput) for c in recommendations(rows, both) if "throughput" in c.objective]
    assert found == [("t4", 1.0), ("h100", 9.0)]


def test_best_measured_cells_are_marked_where_none_passed(cells: Rows, two: Frames) -> None:
    rows = cells({"cell": "a", "verdict": "measured", "metric": None, "served_metric": None})
    found, verdict = best(rows, two[1])
    assert verdict == "measured"
    assert {(c.cell, c.accuracy) for c in found} == {("a", "no metric")}
    assert best(*two)[1] == "passed"
