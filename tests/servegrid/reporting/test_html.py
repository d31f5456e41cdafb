"""report.html: recommendations, tables and charts of the rows; hostile strings do not break it."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable
from html.parser import HTMLParser
from typing import Any

import polars as pl
import pytest

from servegrid.campaign.columns import LOAD, TRUST
from servegrid.campaign.results import Row
from servegrid.reporting.charts import of_campaign
from servegrid.reporting.html import page as page_of
from servegrid.reporting.tables import tables as tables_of

Rows = Callable[..., pl.DataFrame]
Frames = tuple[pl.DataFrame, pl.DataFrame]
EIGHT = ("model", "format", "precision", "instances", "batch", "throughput", "p99", "accuracy")


def page(campaign: str, cells: pl.DataFrame, measurements: pl.DataFrame) -> str:
    shown = tables_of(cells, measurements)
    return page_of(campaign, cells, measurements, shown, of_campaign(shown))


def payload(text: str) -> dict[str, Any]:
    """The rows and charts that the page draws."""
    found = re.search(r'<script type="application/json" id="report">(.*?)</script>', text, re.DOTALL)
    assert found
    content: dict[str, Any] = json.loads(found[1], parse_constant=pytest.fail)
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
def whole(two: Frames) -> str:
    """The page of a campaign with charts; its library makes it large, so it is rendered once."""
    return page("c", *two)


def test_page_of_an_empty_campaign_has_a_note(empty: Frames) -> None:
    text = page("c", *empty)
    assert "Nothing: no cell passed" in Elements(text).text
    assert payload(text)["charts"] == []
    assert len(text) < 30_000  # no library without a chart


def test_hostile_strings_are_text_in_the_page(cells: Rows, points: Rows, hostile: str) -> None:
    name = "<b>a</b>&amp;<i>"
    rows = cells({"cell": name, "model": name, "metric": name, "verdict": "passed", "reason": hostile})
    text = page("<u>c</u>", rows, points({"cell": name, "model": name, "format": name, "gpu": name}))
    elements = Elements(text)
    assert {tag for tag, _ in elements.found}.isdisjoint({"img", "b", "i", "u"})
    for shown in (f"{name} 0.8750", "<u>c</u>", name, "Card <9000>"):
        assert shown in elements.text
    found = payload(text)["tables"]["cells"]
    assert column(found, "reason") == [hostile.strip().replace("\n", ": ")]


@pytest.mark.fault(
    "Security", "report.html shows it, and runs nothing", what="a cell whose name ends a script"
)
def test_hostile_strings_do_not_end_the_charts_script(cells: Rows, points: Rows, whole: str) -> None:
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


def test_page_shows_the_recommendation_and_the_charts(whole: str) -> None:
    elements = Elements(whole)
    facts = [a["data-fact"] for _, a in elements.found if "data-fact" in a]
    assert set(facts) == {*EIGHT, "concurrency"}
    assert "300.0" in elements.text and "30.00 ms" in elements.text
    assert "+50.0% over the next cell" in elements.text
    ids = {a.get("id") for _, a in elements.found}
    charts = {chart["name"] for chart in payload(whole)["charts"]}
    kinds = ("pareto", "breakdown", "throughput")
    assert charts == {f"{kind}-{scenario}" for kind in kinds for scenario in ("offline", "online")} | {
        "accuracy"
    }
    assert {f"chart-{name}" for name in charts} <= ids


def test_page_recommends_no_cell_that_was_only_measured(cells: Rows, points: Rows) -> None:
    rows = cells({"cell": "a", "verdict": "measured", "metric": None, "served_metric": None})
    text = Elements(page("c", rows, points({"cell": "a"}))).text
    assert "Nothing: no cell passed" in text and "no recommendation" in text and "no metric" in text


def test_unlisted_column_gets_a_place_and_a_chart_once_measured(cells: Rows, points: Rows) -> None:
    new = points({"cell": "a"}).with_columns(joules_per_1000=pl.lit(12.5))
    found = payload(page("c", cells({"cell": "a"}), new))
    assert column(found["tables"]["points"], "joules_per_1000") == [12.5]
    assert "joules-per-1000" in {chart["name"] for chart in found["charts"]}
    empty = payload(
        page("c", cells({"cell": "a"}), new.with_columns(joules_per_1000=pl.lit(None, pl.Float64)))
    )
    assert "joules_per_1000" not in empty["tables"]["points"]["data"]


def test_trust_columns_have_no_chart_and_rates_are_not_concurrencies(cells: Rows, points: Rows) -> None:
    trust: Row = {name: 1.5 for name, kind in TRUST.items() if kind.is_float()}
    trust |= {"failed_checks": ["littles_law", "throttled"], "throttle_reasons": ["sw_thermal"], "repeats": 3}
    rate: Row = {"concurrency": None, "request_rate": 20.0, "slo": "p99=50ms", "slo_holds": True}
    rows = points({"cell": "a", **trust}, {"cell": "a", **trust, **rate, "slo_best": True})
    text = page("c", cells({"cell": "a"}), rows)
    assert "failed checks: littles_law, throttled; the only cell" in Elements(text).text
    found = payload(text)
    table = found["tables"]["points"]
    names = [entry["name"] for entry in table["columns"]]
    assert {"request_rate", "failed_checks", "slo_holds"} <= set(names)
    assert not {*TRUST, *LOAD} - {"request_rate", "failed_checks", "slo_holds"} & set(names)
    assert column(table, "failed_checks") == ["littles_law, throttled"] * 2
    assert column(table, "load") == ["concurrency 1", "20.0 requests/s, within the objective"]
    charts = {chart["name"]: chart["spec"] for chart in found["charts"]}
    assert set(charts) == {
        "pareto-online",
        "breakdown-online",
        "throughput-online",
        "accuracy",
        "energy-online",
    }
    assert "isValid(datum['concurrency'])" in json.dumps(charts["throughput-online"])
    assert "isValid(datum['concurrency'])" in json.dumps(charts["breakdown-online"])


def test_share_of_the_limit_is_drawn_where_known(cells: Rows, points: Rows) -> None:
    rows = points({"cell": "a", "share_of_limit": 0.6, "limit_throughput": 900.0, "limit": "compute"})
    found = payload(page("c", cells({"cell": "a"}), rows))
    assert column(found["tables"]["points"], "share_of_limit") == [0.6]
    drawn = {chart["name"] for chart in found["charts"]}
    assert "share-online" in drawn and "share-offline" not in drawn, "no point is offline"


def test_energy_is_shown_where_power_was_measured_and_is_never_zero(cells: Rows, points: Rows) -> None:
    powered = {"cell": "a", "throughput": 600.0, "power_w": 300.0}
    rows = points(powered, {"cell": "a", "throughput": 600.0, "scenario": "offline"})
    found = payload(page("c", cells({"cell": "a"}), rows))
    assert column(found["tables"]["points"], "energy_j_per_1000") == [500.0, None]  # 300 W for 1000/600 s
    assert "energy-online" in {chart["name"] for chart in found["charts"]}
    silent = payload(page("c", cells({"cell": "a"}), points(powered | {"power_w": None})))
    assert "energy_j_per_1000" not in {entry["name"] for entry in silent["tables"]["points"]["columns"]}
    assert not any(chart["name"].startswith("energy") for chart in silent["charts"])


def test_infinite_numbers_are_null_in_the_page(cells: Rows, points: Rows) -> None:
    rows = cells({"cell": "a", "largest_difference": math.inf}, {"cell": "b", "largest_difference": 1.0})
    found = payload(page("c", rows, points({"cell": "a", "avg_ms": math.nan}, {"cell": "b"})))["tables"]
    assert column(found["cells"], "largest_difference") == [None, 1.0]
    assert column(found["points"], "avg_ms") == [None, 1.0]


def test_parameters_that_all_cells_share_are_listed_once(cells: Rows, empty: Frames) -> None:
    rows = cells({"cell": "a", "opset": 13}, {"cell": "b", "opset": 17, "parameters": '{"sizes": []}'})
    found = payload(page("c", rows, empty[1]))["tables"]
    assert column(found["parameters"], "opset") == ["13", "17"]
    shared = dict(zip(column(found["same"], "parameter"), column(found["same"], "value"), strict=True))
    assert (shared["profile"], shared["versions: torch"]) == ("cpu", "2.13")
    assert "opset" not in shared
