"""What to ship, and the forms of the report: right figures, and nothing from outside breaks them."""

from __future__ import annotations

import json
import re
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from tasks import report
from tasks.core.columns import PLACE, TRUST
from tasks.core.errors import UserError
from tasks.core.results import CELLS, MEASURED, MEASUREMENTS, Row, Writer
from tasks.core.slo import parse
from tasks.reporting.answer import best, choices, frontier, lead_text
from tasks.reporting.charts import of_campaign
from tasks.reporting.html import page as page_of
from tasks.reporting.markdown import document
from tasks.reporting.tables import tables as tables_of

HOST = '{"cores": 2, "memory_gb": 23.5, "system": "Linux 6", "python": "3.11"}'
HOSTILE = 'a|b \\| `c` <script>alert("1")</script> & <img src="http://x/y">\nsecond line | with a pipe\n'


def cells(*rows: Row) -> pl.DataFrame:
    common = {
        "campaign": "c",
        "profile": "cpu",
        "gpu": "Card <9000>",
        "model": "toy",
        "environment": HOST,
        "versions": '{"torch": "2.13"}',
        "metric": "f1",
        "served_metric": 0.875,
        "verdict": "passed",
    }
    return pl.DataFrame([common | row for row in rows], schema=CELLS)


def points(*rows: Row) -> pl.DataFrame:
    common: Row = {
        "profile": "cpu",
        "model": "toy",
        "format": "onnx",
        "precision": "fp32",
        "parameters": "{}",
        "instances": 1,
        "batch": 1,
        "concurrency": 1,
        "scenario": "online",
        "stable": True,
        **dict.fromkeys(MEASURED, 1.0),
    }
    return pl.DataFrame([common | row for row in rows], schema=MEASUREMENTS)


EIGHT = ("model", "format", "precision", "instances", "batch", "throughput", "p99", "accuracy")
EMPTY = (pl.DataFrame(schema=CELLS), pl.DataFrame(schema=MEASUREMENTS))
TWO = (
    cells({"cell": "a"}, {"cell": "b", "served_metric": 0.9}),
    points(
        {"cell": "a", "scenario": "offline", "batch": 1, "throughput": 100.0},
        {"cell": "a", "scenario": "offline", "batch": 8, "throughput": 300.0, "p99_ms": 30.0},
        {"cell": "b", "scenario": "offline", "batch": 8, "throughput": 200.0, "format": "ts-trace"},
        {"cell": "a", "concurrency": 4, "throughput": 90.0, "p99_ms": 5.0},
        {"cell": "a", "concurrency": 1, "throughput": 50.0, "p99_ms": 4.0},
        {"cell": "b", "concurrency": 4, "throughput": 99.0, "p99_ms": 6.0},
    ),
)


# What to ship ------------------------------------------------------------------------------------------


def test_best_point_of_each_aim_is_chosen_with_its_lead_over_the_next_cell() -> None:
    offline, online, latency = choices(*TWO)
    assert (offline.aim, offline.cell, offline.batch, offline.throughput, offline.p99_ms) == (
        "most throughput, offline",
        "a",
        8,
        300.0,
        30.0,
    )
    assert offline.lead == pytest.approx(0.5)  # 300 to 200; the same cell's 100 is no rival
    assert (online.cell, online.concurrency, online.throughput) == ("b", 4, 99.0)
    assert online.lead == pytest.approx(0.1)
    assert (online.metric, online.served_metric) == ("f1", 0.9)
    assert (latency.cell, latency.concurrency, latency.p99_ms) == ("a", 1, 4.0)
    assert latency.lead == pytest.approx(0.5)  # 6 ms are half as much again as 4 ms


@pytest.mark.parametrize(
    "verdict", ["measured", "failed_accuracy", "unstable", "infeasible", "unsupported", "error", "skipped"]
)
def test_only_a_cell_that_passed_is_chosen(verdict: str) -> None:
    found = choices(cells({"cell": "a", "verdict": verdict}, {"cell": "b"}), TWO[1])
    assert {c.cell for c in found} == {"b"}
    assert {c.lead for c in found} == {None}


@pytest.mark.parametrize("stable", [False, None])
def test_only_a_stable_point_is_chosen(stable: bool | None) -> None:
    rows = points(
        {"cell": "a", "throughput": 10.0, "p99_ms": 9.0},
        {"cell": "a", "throughput": 1000.0, "p99_ms": 1.0, "stable": stable},
    )
    assert {(c.throughput, c.p99_ms) for c in choices(cells({"cell": "a"}), rows)} == {(10.0, 9.0)}


def test_each_model_has_choices_of_its_own() -> None:
    both = points({"cell": "a", "throughput": 1.0}, {"cell": "b", "model": "other", "throughput": 9.0})
    found = choices(cells({"cell": "a"}, {"cell": "b", "model": "other"}), both)
    assert [(c.model, c.cell, c.lead) for c in found] == [("toy", "a", None)] * 2 + [("other", "b", None)] * 2


def test_nothing_measured_gives_nothing_to_ship() -> None:
    assert choices(*EMPTY) == []
    assert choices(TWO[0], EMPTY[1]) == []


def test_lead_is_told_in_words() -> None:
    first, *_ = choices(*TWO)
    assert lead_text(first) == "+50.0% over the next cell"
    assert lead_text(first.model_copy(update={"lead": None})) == "the only one"


def test_lead_smaller_than_the_points_own_windows_says_so() -> None:
    rows = points(
        {"cell": "a", "throughput": 103.0, "windows_throughput": [1.0, 100.0, 103.0, 105.0]},
        {"cell": "b", "throughput": 100.0},
    )
    choice = choices(TWO[0], rows)[0]
    assert choice.spread == pytest.approx(5 / 103)
    assert lead_text(choice) == "+3.0% over the next cell, within the 4.9% that its own windows lie apart"


def test_most_throughput_under_a_latency_limit_is_an_aim_of_its_own() -> None:
    *_, choice = choices(*TWO, slo=parse("p99=5ms"))  # no rate was searched
    assert (choice.aim, choice.cell) == ("most throughput, online, p99 at most 5 ms", "a")
    assert (choice.throughput, choice.p99_ms, choice.lead) == (90.0, 5.0, None)  # b is over the limit
    assert len(choices(*TWO, slo=parse("p99=3ms"))) == 3


def test_highest_rate_that_holds_the_objective_is_an_aim_of_its_own() -> None:
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
    found = choices(TWO[0], rows, slo)
    *_, closed, best_rate = found
    assert (closed.throughput, closed.load) == (100.0, ("concurrency", "2"))
    assert best_rate.aim == "highest request rate, online, p99 at most 50 ms"
    assert (best_rate.cell, best_rate.request_rate, best_rate.p99_ms) == ("a", 80.0, 40.0)
    assert lead_text(best_rate) == "not stable; +100.0% over the next cell"
    assert "batch 1 at 80 requests/s: 79.0 inferences/s, p99 40.00 ms" in best_rate.sentence
    assert "| batch 1, requests/s 80 | 79.0 | 40.00 |" in document("c", TWO[0], rows, slo)
    assert not any("request rate" in c.aim for c in choices(TWO[0], rows, parse("p99=30ms")))
    assert all(c.request_rate is None for c in choices(TWO[0], rows))


def test_every_latency_limit_has_its_answer() -> None:
    found = frontier(*TWO).select("cell", "throughput", "p99_ms").rows()
    assert found == [("b", 99.0, 6.0), ("a", 90.0, 5.0), ("a", 50.0, 4.0)]
    beaten = points(
        {"cell": "a", "throughput": 10.0, "p99_ms": 1.0},
        {"cell": "b", "throughput": 9.0, "p99_ms": 1.0},
        {"cell": "b", "throughput": 20.0, "p99_ms": 0.5, "stable": False},
    )
    assert frontier(TWO[0], beaten)["cell"].to_list() == ["a"]


def test_answer_is_for_each_device_by_itself() -> None:
    rows = cells({"cell": "a", "profile": "t4"}, {"cell": "a", "profile": "h100"})
    both = points(
        {"cell": "a", "profile": "t4", "throughput": 1.0}, {"cell": "a", "profile": "h100", "throughput": 9.0}
    )
    found = [(c.profile, c.throughput) for c in choices(rows, both) if "throughput" in c.aim]
    assert found == [("t4", 1.0), ("h100", 9.0)]


def test_where_nothing_passed_the_best_of_what_was_measured_is_told_apart() -> None:
    rows = cells({"cell": "a", "verdict": "measured", "metric": None, "served_metric": None})
    found, verdict = best(rows, TWO[1])
    assert verdict == "measured"
    assert {(c.cell, c.accuracy) for c in found} == {("a", "no metric")}
    assert best(*TWO)[1] == "passed"


# Markdown ----------------------------------------------------------------------------------------------


def columns(line: str) -> int:
    """Columns of a Markdown table's line: a pipe after a backslash is text."""
    return len(re.findall(r"(?<!\\)\|", line)) - 1


def tables(text: str) -> list[list[str]]:
    blocks = [block.splitlines() for block in text.split("\n\n")]
    return [block for block in blocks if block[0].startswith("|")]


@pytest.mark.parametrize(
    "rows",
    [EMPTY, TWO, (cells({"cell": "a|b", "verdict": "error", "reason": HOSTILE}), TWO[1])],
    ids=["empty", "two", "hostile"],
)
def test_tables_of_the_markdown_are_whole(rows: tuple[pl.DataFrame, pl.DataFrame]) -> None:
    found = tables(document("c", *rows))
    assert found
    for table in found:
        assert {columns(line) for line in table} == {columns(table[0])}
        assert all(line.startswith("| ") and line.endswith(" |") for line in table)


def test_markdown_of_an_empty_campaign_says_so() -> None:
    text = document("c", *EMPTY)
    assert text.startswith("# servegrid campaign c\n\nNo cell has finished yet.\n")
    assert "Nothing: no cell passed" in text


def test_markdown_has_the_answer_the_cells_and_the_points() -> None:
    text = document("c", *TWO)
    assert (
        "| toy: most throughput, offline | onnx fp32, 1 instance(s) | batch 8, concurrency 1 | 300.0 |"
        in text
    )
    assert "+50.0% over the next cell" in text
    assert len(tables(text)[1]) == 2 + 2
    assert "## Offline" in text
    assert "## Online" in text
    assert "torch 2.13" in text


def test_error_in_the_markdown_has_its_first_line() -> None:
    text = document("c", cells({"cell": "a", "verdict": "error", "reason": "broke here\ntail"}), EMPTY[1])
    row = next(line for line in text.splitlines() if line.startswith("| a |"))
    assert row.endswith("| broke here |")
    assert "tail" not in text


def test_number_that_was_not_measured_is_empty_and_never_zero() -> None:
    text = document("c", *TWO)
    row = next(line for line in text.splitlines() if line.startswith("| a | 8 | 1 |"))
    assert row.split(" | ")[-2:] == ["", "yes |"]  # the framework's latency, stable


# HTML --------------------------------------------------------------------------------------------------


def page(campaign: str, cells: pl.DataFrame, measurements: pl.DataFrame) -> str:
    shown = tables_of(cells, measurements)
    return page_of(campaign, cells, measurements, shown, of_campaign(shown))


def payload(text: str) -> dict[str, Any]:
    """The rows and charts that the page draws."""
    found = re.search(r'<script type="application/json" id="report">(.*?)</script>', text, re.DOTALL)
    assert found
    content: dict[str, Any] = json.loads(found[1])
    return content


def column(table: dict[str, Any], name: str) -> list[Any]:
    """A column of a table of the payload."""
    packed = table["data"][name]
    return [packed["values"][n] for n in packed["places"]] if isinstance(packed, dict) else packed


class Elements(HTMLParser):
    """Every element of a page with its attributes, and its text outside of scripts."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.found: list[tuple[str, dict[str, str | None]]] = []
        self.text = ""
        self.feed(text)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found.append((tag, dict(attrs)))

    def handle_data(self, data: str) -> None:
        if self.cdata_elem is None:
            self.text += data

    def count(self, tag: str) -> int:
        return [name for name, _ in self.found].count(tag)


@pytest.fixture(scope="module")
def whole() -> str:
    """The page of a campaign with charts; its library makes it large, so it is rendered once."""
    return page("c", *TWO)


def test_page_of_an_empty_campaign_says_so() -> None:
    text = page("c", *EMPTY)
    assert "Nothing: no cell passed" in Elements(text).text
    assert payload(text)["charts"] == []
    assert len(text) < 30_000  # no library without a chart


def test_strings_from_outside_are_text_in_the_page() -> None:
    name = "<b>a</b>&amp;<i>"
    rows = cells({"cell": name, "model": name, "metric": name, "verdict": "passed", "reason": HOSTILE})
    hostile = points({"cell": name, "model": name, "format": name, "gpu": name})
    text = page("<u>c</u>", rows, hostile)
    elements = Elements(text)
    assert {tag for tag, _ in elements.found}.isdisjoint({"img", "b", "i", "u"})
    for shown in (f"{name} 0.8750", "<u>c</u>", name, "Card <9000>"):
        assert shown in elements.text
    found = payload(text)["tables"]["cells"]
    assert column(found, "reason") == [HOSTILE.split("\n")[0]]


def test_strings_from_outside_do_not_end_the_charts_script(whole: str) -> None:
    name = "</script><img src=x onerror=alert(1)>"
    text = page("c", cells({"cell": name}), points({"cell": name}))
    assert Elements(text).count("img") == 0
    assert Elements(text).count("script") == Elements(whole).count("script") > 0


def test_page_loads_nothing_from_outside(whole: str) -> None:
    elements = Elements(whole)
    assert [a for _, a in elements.found if a.get("src") or a.get("href")] == []
    assert elements.count("link") == 0
    styles = re.findall(r"<style.*?</style>", whole, re.DOTALL)
    assert not any("@import" in style or "url(" in style for style in styles)


def test_page_shows_the_answer_and_the_charts(whole: str) -> None:
    elements = Elements(whole)
    facts = [a["data-fact"] for _, a in elements.found if "data-fact" in a]
    assert set(facts) == {*EIGHT, "concurrency"}
    assert "300.0" in elements.text and "30.00 ms" in elements.text
    assert "+50.0% over the next cell" in elements.text
    ids = {a.get("id") for _, a in elements.found}
    charts = {chart["name"] for chart in payload(whole)["charts"]}
    assert charts == {"pareto", "breakdown-offline", "breakdown-online", "batch", "concurrency", "accuracy"}
    assert {f"chart-{name}" for name in charts} <= ids


def test_page_of_cells_that_were_only_measured_recommends_none() -> None:
    rows = cells({"cell": "a", "verdict": "measured", "metric": None, "served_metric": None})
    text = Elements(page("c", rows, points({"cell": "a"}))).text
    assert "Nothing: no cell passed" in text and "no recommendation" in text and "no metric" in text


def test_column_that_no_list_names_has_a_place_and_a_chart_once_it_is_measured() -> None:
    new = points({"cell": "a"}).with_columns(joules_per_1000=pl.lit(12.5))
    found = payload(page("c", cells({"cell": "a"}), new))
    assert column(found["tables"]["points"], "joules_per_1000") == [12.5]
    assert "joules-per-1000" in {chart["name"] for chart in found["charts"]}
    empty = payload(
        page("c", cells({"cell": "a"}), new.with_columns(joules_per_1000=pl.lit(None, pl.Float64)))
    )
    assert "joules_per_1000" not in empty["tables"]["points"]["data"]


def test_columns_of_trust_make_no_charts_and_rates_are_no_concurrencies() -> None:
    trust: Row = {name: 1.5 for name, kind in TRUST.items() if kind.is_float()}
    trust |= {"failed_checks": ["littles_law", "throttled"], "throttle_reasons": ["sw_thermal"], "repeats": 3}
    rate: Row = {"concurrency": None, "request_rate": 20.0, "slo": "p99=50ms", "slo_holds": True}
    rows = points({"cell": "a", **trust}, {"cell": "a", **trust, **rate, "slo_best": True})
    found = payload(page("c", cells({"cell": "a"}), rows))
    table = found["tables"]["points"]
    names = [entry["name"] for entry in table["columns"]]
    assert {"request_rate", "failed_checks", "slo_holds"} <= set(names)
    assert not {*TRUST, *PLACE} - {"request_rate", "failed_checks", "slo_holds"} & set(names)
    assert column(table, "failed_checks") == ["littles_law, throttled"] * 2
    assert column(table, "load") == ["concurrency 1", "20.0 requests/s, within the objective"]
    charts = {chart["name"]: chart["spec"] for chart in found["charts"]}
    assert set(charts) == {
        "pareto",
        "breakdown-online",
        "breakdown-offline",
        "batch",
        "concurrency",
        "accuracy",
    }
    assert "isValid(datum['concurrency'])" in json.dumps(charts["concurrency"])
    assert "isValid(datum['concurrency'])" in json.dumps(charts["breakdown-online"])


def test_share_of_the_limit_is_drawn_where_it_was_counted() -> None:
    rows = points({"cell": "a", "share_of_limit": 0.6, "limit_throughput": 900.0, "limit": "compute"})
    found = payload(page("c", cells({"cell": "a"}), rows))
    assert column(found["tables"]["points"], "share_of_limit") == [0.6]
    assert {"share-offline", "share-online"} <= {chart["name"] for chart in found["charts"]}


def test_parameters_that_all_cells_share_are_listed_once() -> None:
    rows = cells({"cell": "a", "opset": 13}, {"cell": "b", "opset": 17})
    found = payload(page("c", rows, EMPTY[1]))["tables"]
    assert column(found["parameters"], "opset") == ["13", "17"]
    shared = dict(zip(column(found["same"], "parameter"), column(found["same"], "value"), strict=True))
    assert (shared["profile"], shared["versions: torch"]) == ("cpu", "2.13")
    assert "opset" not in shared


# The stage ---------------------------------------------------------------------------------------------


def campaign(folder: Path, frames: tuple[pl.DataFrame, pl.DataFrame]) -> Path:
    writer = Writer(folder)
    for row in frames[0].iter_rows(named=True):
        writer.append("cell", row)
    for row in frames[1].iter_rows(named=True):
        writer.append("measurement", row)
    return folder


def test_report_is_written_in_every_form_and_can_be_written_again(tmp_path: Path) -> None:
    folder = campaign(tmp_path / "c7", TWO)
    text = report.write(folder)
    assert report.write(folder) == text == (folder / "report.md").read_text()
    assert "campaign c7" in (folder / "report.html").read_text()
    assert pl.read_parquet(folder / "cells.parquet").equals(TWO[0])
    assert pl.read_parquet(folder / "measurements.parquet").equals(TWO[1])
    images = {p.name for p in (folder / "charts" / "toy").iterdir()}
    assert {"pareto.svg", "pareto.png", "batch.svg", "breakdown-online.png"} <= images
    assert "a" in (folder / "charts" / "toy" / "breakdown-offline.svg").read_text()
    heights: dict[str, Any] = {s: pl.read_csv(folder / f"{s}.csv").height for s in ("offline", "online")}
    assert heights == {"offline": 3, "online": 3}


def test_report_of_a_campaign_that_is_not_there_is_refused(tmp_path: Path) -> None:
    campaign(tmp_path / "c7", (cells({"cell": "a"}), EMPTY[1]))
    with pytest.raises(UserError, match="no campaign there; the latest are: c7"):
        report.write(tmp_path / "c8")
    assert not (tmp_path / "c8").exists()
