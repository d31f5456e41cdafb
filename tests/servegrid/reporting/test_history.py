"""History: changes from campaign to campaign, and the settings that changed with them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from servegrid.campaign.results import Row, Writer, read
from servegrid.domain.errors import UserError
from servegrid.reporting.history import LAST, Past, moves, past

HEAD: Row = {
    "cell": "toy-onnx",
    "profile": "t4",
    "model": "toy",
    "random_weights": False,
    "gpu": "Tesla T4",
    "triton_release": "24.10",
    "environment": json.dumps({"driver": "580.1"}),
    "versions": json.dumps({"torch": "2.12", "onnx": "1.23"}),
}
POINT: Row = {
    **HEAD,
    "scenario": "online",
    "batch": 1,
    "concurrency": 16,
    "shared_memory": "system",
    "max_batch_size": 8,
    "generator": "client",
    "stable": True,
    "throughput": 100.0,
    "windows_throughput": [99.0, 100.0, 101.0],
}


def past_of(folder: Path) -> Past:
    return past(folder, read(folder))


def campaign(results: Path, name: str, verdict: str = "passed", **changes: object) -> None:
    """A campaign of one cell and one point."""
    of_cell = {key: changes.pop(key) for key in ("metric", "served_metric") if key in changes}
    head = {key: value for key, value in changes.items() if key in (*HEAD, "started_at")} | of_cell
    writer = Writer(results / name)
    writer.append("cell", HEAD | head | {"campaign": name, "verdict": verdict})
    writer.append("measurement", POINT | changes | {"campaign": name})


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"generator": "perf_analyzer"}, "generator client -> perf_analyzer"),
        ({"samples_digest": "b" * 64}, f"the samples {'a' * 12} -> {'b' * 12}"),
        ({"artifact_digest": "b" * 64}, f"the served file {'a' * 12} -> {'b' * 12}"),
    ],
)
def test_another_generator_other_samples_and_another_file_are_named(
    tmp_path: Path, changes: dict[str, str], told: str
) -> None:
    before = {"generator": "client", "samples_digest": "a" * 64, "artifact_digest": "a" * 64}
    campaign(tmp_path, "20260101", **before)
    campaign(tmp_path, "20260102", **(before | changes), throughput=60.0)
    (move,) = moves(tmp_path)
    assert move.changed_with_it == (told,)


def test_throughput_beyond_noise_is_told_with_what_changed(tmp_path: Path) -> None:
    campaign(tmp_path, "20260101")
    campaign(tmp_path, "20260102", throughput=103.0)
    newer = json.dumps({"torch": "2.13", "onnx": "1.23"})
    driver = json.dumps({"driver": "581.2"})
    campaign(
        tmp_path, "20260103", throughput=80.0, versions=newer, environment=driver, triton_release="25.02"
    )
    (move,) = moves(tmp_path)
    assert (move.cell, move.profile, move.before, move.after) == ("toy-onnx", "t4", "103.0", "80.0")
    assert move.what == "online, batch 1 x 16, inferences/s"
    assert move.change == pytest.approx(80 / 103 - 1)
    assert move.campaigns == ("20260102", "20260103")
    assert move.changed_with_it == (
        "triton_release 24.10 -> 25.02",
        "driver 580.1 -> 581.2",
        "torch 2.12 -> 2.13",
    )


def test_change_within_the_spread_of_the_windows_is_noise(tmp_path: Path) -> None:
    campaign(tmp_path, "20260101")
    campaign(tmp_path, "20260102", throughput=112.0, windows_throughput=[100.0, 112.0, 120.0])
    assert moves(tmp_path) == []
    campaign(tmp_path, "20260103", throughput=150.0)
    assert [move.after for move in moves(tmp_path)] == ["150.0"]


@pytest.mark.parametrize(
    ("column", "title", "within", "beyond"),
    [("avg_ms", "avg ms", 10.45, 10.6), ("p99_ms", "p99 ms", 14.9, 15.1), ("p99_ms", "p99 ms", 5.1, 4.9)],
)
def test_latency_beyond_floor_and_windows_is_a_change(
    tmp_path: Path, column: str, title: str, within: float, beyond: float
) -> None:
    for case, after in (("within", within), ("beyond", beyond), ("windows", beyond)):
        campaign(tmp_path / case, "20260101", **{column: 10.0})
        windows = [6.0, 10.0, 16.0] if case == "windows" else None
        campaign(tmp_path / case, "20260102", **{column: after}, windows_avg_ms=windows)
    assert moves(tmp_path / "within") == moves(tmp_path / "windows") == []
    (move,) = moves(tmp_path / "beyond")
    assert (move.what, move.before) == (f"online, batch 1 x 16, {title}", "10.00")
    assert move.change == pytest.approx(beyond / 10 - 1)
    assert move.noise == (0.05 if column == "avg_ms" else 0.5)


def test_served_metric_beyond_its_step_is_a_change(tmp_path: Path) -> None:
    for number, metric in enumerate((0.9, 0.9005, None, 0.8995, 0.898, 0.0, 0.9), start=1):
        campaign(tmp_path, f"2026010{number}", served_metric=metric, metric="f1")
    found = [(move.what, move.before, move.after, move.by) for move in moves(tmp_path)]
    assert found == [
        ("f1, served", "0.9005", "0.8995", "-0.1% (noise 0.1%)"),
        ("f1, served", "0.8995", "0.8980", "-0.2% (noise 0.1%)"),
        ("f1, served", "0.8980", "0.0000", "-100.0% (noise 0.1%)"),
    ]


@pytest.mark.parametrize("change", [{"stable": False}, {"batch": 2}, {"protocol": "http"}, {"profile": "l4"}])
def test_only_stable_measurements_of_the_same_are_compared(tmp_path: Path, change: Row) -> None:
    campaign(tmp_path, "20260101")
    campaign(tmp_path, "20260102", throughput=10.0, **change)
    assert moves(tmp_path) == []


def test_points_of_one_campaign_are_not_compared(tmp_path: Path) -> None:
    rates: list[Row] = [
        {"concurrency": None, "request_rate": rate, "distribution": kind, "throughput": throughput}
        for rate, kind, throughput in (
            (10.0, "poisson", 10.0),
            (20.0, "poisson", 20.0),
            (20.0, "constant", 30.0),
        )
    ]
    for name, share in (("20260101", 1.0), ("20260102", 0.5)):
        campaign(tmp_path, name)
        campaign(tmp_path, name, protocol="http", throughput=50.0)
        for rate in rates:
            campaign(tmp_path, name, **rate | {"throughput": rate["throughput"] * share})
        if share == 1.0:
            assert moves(tmp_path) == []
    assert [move.what for move in moves(tmp_path)] == [
        *["online, batch 1 at 10 requests/s, inferences/s", "online, batch 1 at 20 requests/s, inferences/s"],
        "online, batch 1 at 20 requests/s, inferences/s",
    ]


def test_changed_verdict_is_a_change(tmp_path: Path) -> None:
    campaign(tmp_path, "20260101")
    campaign(tmp_path, "20260102", verdict="failed_accuracy")
    campaign(tmp_path, "20260103", verdict="skipped")
    (move,) = moves(tmp_path)
    assert (move.what, move.before, move.after, move.change) == ("verdict", "passed", "failed_accuracy", None)
    assert moves(tmp_path / "none") == []
    with pytest.raises(UserError, match=r"cell.*'toy-onx'.*'toy-onnx'"):
        moves(tmp_path, "toy-onx")


def test_past_has_earlier_campaigns_with_the_same_cells(tmp_path: Path) -> None:
    for number, throughput in enumerate((100.0, 103.0, 80.0), start=1):
        campaign(tmp_path, f"2026010{number}", throughput=throughput)
    campaign(tmp_path, "20260102b", cell="other", throughput=1.0)
    found = past_of(tmp_path / "20260102")
    assert found.moves == []
    assert found.trail["change"].to_list() == pytest.approx([0.0, 0.03])  # later campaigns are left out
    found = past_of(tmp_path / "20260103")
    assert [move.campaigns for move in found.moves] == [("20260102", "20260103")]
    assert found.trail["when"].to_list() == ["20260101", "20260102", "20260103"]
    assert found.trail["change"].to_list() == pytest.approx([0.0, 0.03, -0.2])
    assert past_of(tmp_path / "20260102b").trail.is_empty()


def test_trail_has_the_best_point_only(tmp_path: Path) -> None:
    for name, best in (("20260101", 16), ("20260102", 8)):
        for concurrency in (8, 16):
            throughput = 100.0 + (concurrency == best)
            Writer(tmp_path / name).append(
                "measurement",
                POINT | {"campaign": name, "concurrency": concurrency, "throughput": throughput},
            )
        Writer(tmp_path / name).append("cell", HEAD | {"campaign": name, "verdict": "passed"})
    assert past_of(tmp_path / "20260102").trail["concurrency"].to_list() == [8, 8]


def test_campaigns_are_in_the_order_in_which_they_began(tmp_path: Path) -> None:
    campaign(tmp_path, "nightly", throughput=50.0, started_at="2026-01-02T01:00:00.000+00:00")
    campaign(tmp_path, "after-driver", throughput=100.0, started_at="2026-01-03T01:00:00.000+00:00")
    (move,) = moves(tmp_path)
    assert move.campaigns == ("nightly", "after-driver")
    assert past_of(tmp_path / "after-driver").trail["when"].to_list() == [
        "2026-01-02 01:00",
        "2026-01-03 01:00",
    ]


def test_past_is_limited_to_the_last_campaigns(tmp_path: Path) -> None:
    for number in range(LAST + 3):
        campaign(tmp_path, f"202601{number:02}")
    assert past_of(tmp_path / f"202601{LAST + 2:02}").trail.height == LAST
