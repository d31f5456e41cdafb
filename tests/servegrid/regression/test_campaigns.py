"""Two campaigns: which changes are flagged, which comparisons refused, and each form of output."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from xml.etree import ElementTree

import pytest

from servegrid.campaign.results import Row, Writer
from servegrid.domain.errors import UserError
from servegrid.regression.campaigns import Rule, compare, read_repeats
from servegrid.regression.output import junit, markdown, summary
from servegrid.regression.verdict import Comparison

POINTS = (("offline", 1, 1), ("online", 1, 4))


def campaign(
    results: Path, name: str, speed: float, *, cells: tuple[str, ...] = ("m-onnx", "m-ts"), **more: object
) -> str:
    """A campaign whose cells do 1000 x `speed` inferences/s, windows 1 % apart."""
    writer = Writer(results / name)
    verdict = str(more.pop("verdict", "passed"))
    profile = more.get("profile")
    versions = json.dumps({"torch": more.pop("torch", "2.13")})
    for cell in cells:
        writer.append(
            "cell",
            {"campaign": name, "cell": cell, "profile": profile, "verdict": verdict, "versions": versions},
        )
        for scenario, batch, concurrency in POINTS:
            rate, average = 1000 * speed, concurrency / speed
            row: Row = {
                "campaign": name, "cell": cell, "scenario": scenario, "batch": batch, "gpu": "card",
                "concurrency": concurrency, "throughput": rate, "p50_ms": average, "p99_ms": 2 * average,
                "windows_throughput": [1.0, rate * 0.99, rate, rate * 1.01], "max_batch_size": 8,
                "windows_avg_ms": [99.0, average * 1.01, average, average * 0.99], "stable": True,
            }  # fmt: skip
            writer.append("measurement", row | more)
    return name


def compared(results: Path, a: str, b: str, **rule: object) -> Comparison:
    return compare(read_repeats(a, results), read_repeats(b, results), Rule.model_validate(rule))


def changes(found: Comparison) -> dict[str, str]:
    return {cell.cell: cell.change for cell in found.cells}


def test_single_runs_are_judged_by_their_last_windows_and_ten_percent(tmp_path: Path) -> None:
    for name, speed in (("a", 1.0), ("near", 0.93), ("slow", 0.7), ("fast", 1.4)):
        campaign(tmp_path, name, speed)
    assert set(changes(compared(tmp_path, "a", "a")).values()) == {"same"}
    assert "regressed" not in changes(compared(tmp_path, "a", "near")).values()
    assert set(changes(compared(tmp_path, "a", "slow")).values()) == {"regressed"}
    assert set(changes(compared(tmp_path, "a", "fast")).values()) == {"improved"}
    assert "one run each" in compared(tmp_path, "a", "near").method


def repeats(results: Path, name: str, *speeds: float) -> str:
    for number, speed in enumerate(speeds):
        campaign(results / name, f"{name}{number}", speed)
    return str(results / name)


def test_repeats_show_small_changes_and_variation_between_runs(tmp_path: Path) -> None:
    a = repeats(tmp_path, "a", 1.0, 1.003, 0.997, 1.001)
    small = repeats(tmp_path, "b", 0.95, 0.953, 0.948, 0.951)
    wide = repeats(tmp_path, "c", 1.1, 0.85, 0.97, 0.8)
    found = compared(tmp_path, a, small)
    assert set(changes(found).values()) == {"regressed"}
    (throughput,) = {round(e.b) for c in found.cells for e in c.judged if e.figures.metric == "throughput"}
    assert throughput == 950
    assert set(changes(compared(tmp_path, a, wide)).values()) == {"unclear"}
    campaign(tmp_path, "one", 1.0)
    with pytest.raises(UserError, match=r"\b4 run.*\b1\b"):
        compared(tmp_path, a, "one")


def test_other_cards_and_settings_are_refused_or_labelled(tmp_path: Path) -> None:
    campaign(tmp_path, "a", 1.0)
    campaign(tmp_path, "other", 1.0, gpu="another", max_batch_size=4, server_version="2.60", torch="2.14")
    with pytest.raises(UserError, match="--across") as caught:
        compared(tmp_path, "a", "other")
    assert 'gpu: "card" in A, "another" in B' in str(caught.value)
    assert "max_batch_size: 8 in A, 4 in B" in str(caught.value)
    assert "server_version" not in str(caught.value)
    found = compared(tmp_path, "a", "other", across=True)
    assert "torch: 2.13 -> 2.14" in found.conditions
    assert '**different settings:** gpu: "card" in A, "another" in B' in markdown(found)


def test_older_campaigns_with_cores_kept_awake_are_not_compared_with_those_at_rest(tmp_path: Path) -> None:
    for name, more in (("new", {}), ("rest", {"cores_awake": False}), ("awake", {"cores_awake": True})):
        campaign(tmp_path, name, 1.0, **more)
    assert set(changes(compared(tmp_path, "new", "rest")).values()) == {"same"}
    with pytest.raises(UserError, match="cores_awake: false in A, true in B"):
        compared(tmp_path, "new", "awake")


def test_minimum_request_count_is_a_setting_the_count_reached_is_not(tmp_path: Path) -> None:
    for name, minimum, reached in (("a", 50, 1513), ("again", 50, 1474), ("more", 100, 1513)):
        campaign(tmp_path, name, 1.0, minimum_request_count=minimum, request_count=reached)
    assert set(changes(compared(tmp_path, "a", "again")).values()) == {"same"}
    with pytest.raises(UserError, match=r"minimum_request_count\b.*\b50\b.*\b100\b"):
        compared(tmp_path, "a", "more")


def test_cell_that_no_longer_runs_has_regressed_and_cell_of_one_campaign_is_named(tmp_path: Path) -> None:
    campaign(tmp_path, "a", 1.0)
    campaign(tmp_path, "b", 1.0, cells=("m-onnx",), verdict="failed_accuracy")
    found = compared(tmp_path, "a", "b")
    assert changes(found)["m-onnx"] == "regressed"
    assert summary(found) == "1 regressed, 1 only in A"
    assert "m-onnx: passed in A, failed_accuracy in B" in markdown(found)
    with pytest.raises(UserError, match=r"\ba\b.*\bc\b"):
        campaign(tmp_path, "c", 1.0, cells=("other",))
        compared(tmp_path, "a", "c")


def test_a_card_that_became_slower_beside_one_that_did_not_is_found(tmp_path: Path) -> None:
    for name, slower in (("a", 1.0), ("b", 0.5)):
        campaign(tmp_path, name, 1.0, profile="p1")
        campaign(tmp_path, name, slower, profile="p2")
    found = compared(tmp_path, "a", "b")
    assert changes(found) == {
        "m-onnx on p1": "same", "m-ts on p1": "same", "m-onnx on p2": "regressed", "m-ts on p2": "regressed",
    }  # fmt: skip
    campaign(tmp_path, "one", 1.0, profile="p1")
    assert summary(compared(tmp_path, "a", "one")) == "2 same, 2 only in A"


def test_cells_of_one_profile_each_are_paired_whatever_it_is_called(tmp_path: Path) -> None:
    for profile in ("p1", "p2"):
        campaign(tmp_path, profile, 1.0, profile=profile)
    assert changes(compared(tmp_path, "p1", "p2", across=True)) == {"m-onnx": "same", "m-ts": "same"}


@pytest.mark.parametrize("verdict", ["skipped", "error"])
def test_nothing_to_compare_is_no_result_in_either_order(tmp_path: Path, verdict: str) -> None:
    whole = campaign(tmp_path, "whole", 1.0)
    writer = Writer(tmp_path / "none")
    for cell in ("m-onnx", "m-ts"):
        writer.append("cell", {"campaign": "none", "cell": cell, "verdict": verdict})
    with pytest.raises(UserError, match="none"):
        compared(tmp_path, "none", whole)
    if verdict == "skipped":
        with pytest.raises(UserError, match="none"):
            compared(tmp_path, whole, "none")
    else:
        assert summary(compared(tmp_path, whole, "none")) == "2 regressed"


def test_an_interrupted_campaign_is_refused_with_how_to_go_on(tmp_path: Path) -> None:
    campaign(tmp_path, "a", 1.0, cells=("m-onnx",), profile="cpu")
    campaign(tmp_path, "b", 1.0, cells=("m-onnx",), profile="cpu")
    start = {"options": {}, "attempt": 1, "cells": [["m-onnx", "cpu"], ["m-ts", "cpu"]]}
    (tmp_path / "b" / "campaign.json").write_text(json.dumps(start))
    for pair in (("a", "b"), ("b", "a")):
        with pytest.raises(UserError, match=r"b: 1 cells.*m-ts on cpu.*--resume b"):
            compared(tmp_path, *pair)


def test_junit_has_a_case_a_cell(tmp_path: Path) -> None:
    campaign(tmp_path, "a", 1.0)
    campaign(tmp_path, "b", 0.6, cells=("m-onnx",))
    suite = ElementTree.fromstring(junit(compared(tmp_path, "a", "b")))  # noqa: S314  # our own
    assert {k: suite.get(k) for k in ("tests", "failures", "skipped", "errors")} == {
        "tests": "2", "failures": "1", "skipped": "1", "errors": "0",
    }  # fmt: skip
    failed, skipped = suite.findall("testcase")
    failure = failed.find("failure")
    assert failure is not None
    assert "offline, batch 1 x 1: throughput 999.97 -> 599.98, -40.0%" in str(failure.text)
    assert skipped.find("skipped") is not None


def test_markdown_has_changes_first(tmp_path: Path) -> None:
    campaign(tmp_path, "a", 1.0)
    campaign(tmp_path, "b", 0.6, cells=("m-onnx",))
    text = markdown(compared(tmp_path, "a", "b"))
    first, folded = text.split("<details>")
    assert first.count("🔴 regressed") == folded.count("🔴 regressed") == 4
    assert "All 4 figures" in folded


def test_all_shows_every_figure(tmp_path: Path) -> None:
    campaign(tmp_path, "a", 1.0)
    words = [
        str(Path(sys.executable).with_name("servegrid")),
        "compare",
        str(tmp_path / "a"),
        str(tmp_path / "a"),
    ]
    short, whole = (
        subprocess.run([*words, *flags], capture_output=True, text=True, check=True).stdout.splitlines()
        for flags in ([], ["--all"])
    )
    cells = {line.split("\t")[0] for line in short if "\t" in line} - {"cell"}
    assert {line.split("\t")[0] for line in whole if "\t" in line} - {"cell"} == cells
    assert sum("\t" in line for line in whole) == 1 + 4 * len(cells)
    assert sum("\t" in line for line in short) == 1 + len(cells)


def test_the_command_exits_with_0_1_and_2_and_writes_both_forms(tmp_path: Path) -> None:
    campaign(tmp_path, "a", 1.0)
    campaign(tmp_path, "slow", 0.6)
    campaign(tmp_path, "card", 1.0, gpu="another")
    program = str(Path(sys.executable).with_name("servegrid"))
    forms = {name: tmp_path / name for name in ("junit", "markdown")}
    for other, code in (("a", 0), ("slow", 1), ("card", 2)):
        flags = [word for name, path in forms.items() for word in (f"--{name}", str(path))]
        done = subprocess.run(
            [program, "compare", str(tmp_path / "a"), str(tmp_path / other), *flags],
            capture_output=True, text=True, timeout=60, check=False,
        )  # fmt: skip
        assert done.returncode == code, done.stdout + done.stderr
        named = [line.split("\t")[0] for line in done.stdout.splitlines() if "\t" in line]
        assert len(named) == len(set(named)), "a line a cell"
        assert ("throughput 999.97 to 599.98" in done.stdout) == (other == "slow"), done.stdout
        assert all(path.exists() == (code < 2) for path in forms.values())
        for path in forms.values():
            path.unlink(missing_ok=True)


def test_a_campaign_that_is_kept_as_parquet_alone_is_read(tmp_path: Path) -> None:
    kept = str(Path(__file__).parent / "data" / "as_parquet")  # of November 2026, on an H100
    found = compared(tmp_path, kept, kept)
    assert {cell.change for cell in found.cells if cell.judged} <= {"same", "unclear"}
    assert any(cell.judged for cell in found.cells)
