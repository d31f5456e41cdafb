"""What to ship: the one calculation behind every form of the report."""

from __future__ import annotations

from collections.abc import Sequence

import polars as pl

from servegrid.campaign.columns import load_in_words
from servegrid.campaign.results import Verdict
from servegrid.domain.slo import Slo
from servegrid.domain.values import Scenario, Value
from servegrid.loadgen.base import STABLE_WINDOWS, spread

OF_CELL = ("cell", "profile")
"""What names a cell's rows: a campaign may run one cell on several devices."""
OF_MODEL = ("model", "profile", "gpu")
"""What an answer is for."""
REQUIRED = ("model", "format", "precision", "instances", "batch", "throughput", "p99_ms")
"""What an answer says of its point: one whose row lacks any of it, being damaged, answers nothing."""


NOTHING = "Nothing: no cell passed with a stable point."
UNPROVEN = (
    "Nothing: no cell passed. Below is the best of what was measured only: no metric has proven it, so it is "
    "no recommendation."
)


class Objective(Value):
    """One question: the most or the least of a column, among the points of a scenario under a limit: those at
    a concurrency or, `at_rate`, the highest request rate of each cell that holds the limit."""

    title: str
    scenario: Scenario
    column: str
    windows: str
    most: bool
    slo: Slo | None = None
    at_rate: bool = False


OBJECTIVES = (
    Objective(
        title="most throughput, offline",
        scenario="offline",
        column="throughput",
        windows="windows_throughput",
        most=True,
    ),
    Objective(
        title="most throughput, online",
        scenario="online",
        column="throughput",
        windows="windows_throughput",
        most=True,
    ),
    Objective(
        title="least p99 latency, online",
        scenario="online",
        column="p99_ms",
        windows="windows_avg_ms",
        most=False,
    ),
)


class Recommendation(Value):
    """The best measured point of one objective among the cells of a verdict, and its lead over the next cell.

    `spread` is how far the point's own last three windows lie apart: a smaller lead tells nothing.
    """

    objective: str
    column: str
    model: str
    profile: str | None = None
    gpu: str | None = None
    cell: str
    scenario: Scenario
    format: str
    precision: str
    instances: int
    batch: int
    concurrency: int | None
    request_rate: float | None = None
    stable: bool = True
    failed_checks: tuple[str, ...] = ()
    throughput: float
    p99_ms: float
    metric: str | None
    served_metric: float | None
    metric_drop: float | None = None
    lead: float | None
    spread: float | None = None

    @property
    def accuracy(self) -> str:
        """The served model's metric in words."""
        return "no metric" if self.served_metric is None else f"{self.metric} {self.served_metric:.4f}"

    @property
    def load(self) -> tuple[str, str]:
        """What kept the model busy: its name, and how much of it."""
        if self.request_rate is None:
            return "concurrency", str(self.concurrency)
        return "requests/s", f"{self.request_rate:g}"

    @property
    def sentence(self) -> str:
        """The whole in one line."""
        return (
            f"{self.objective}: {self.cell}, {self.instances} instance(s), "
            f"{load_in_words(self.model_dump())}: {self.throughput:.1f} inferences/s, "
            f"p99 {self.p99_ms:.2f} ms, {self.accuracy} ({lead_text(self)})"
        )


def under(slo: Slo) -> tuple[Objective, Objective]:
    """The objectives of an SLO: for a closed loop (concurrency), and for an open loop (request rate)."""
    within = f"{slo.statistic} at most {slo.limit_ms:g} ms"
    closed = OBJECTIVES[1].model_copy(update={"title": f"most throughput, online, {within}", "slo": slo})
    title = f"highest request rate, online, {within}"
    return closed, closed.model_copy(update={"title": title, "column": "request_rate", "at_rate": True})


def recommendations(
    cells: pl.DataFrame,
    measurements: pl.DataFrame,
    slo: Slo | None = None,
    verdict: Verdict = "passed",
) -> list[Recommendation]:
    """The best point of each objective, for each model on each device, among the cells with that verdict.

    The point is stable; for a request rate the search has already decided. An objective that no point meets
    has no recommendation.
    """
    points = _of_verdict(cells, measurements, verdict)
    objectives = OBJECTIVES if slo is None else (*OBJECTIVES, *under(slo))
    found = []
    for _, of_model in points.group_by(OF_MODEL, maintain_order=True):
        for objective in objectives:
            candidates = of_model.filter((pl.col("scenario") == objective.scenario) & _answers(objective))
            ranked = candidates.sort(objective.column, descending=objective.most)
            best_of_cell = ranked.unique("cell", keep="first", maintain_order=True)
            if not best_of_cell.is_empty():
                found.append(_recommendation(objective, best_of_cell))
    return found


def best(
    cells: pl.DataFrame, measurements: pl.DataFrame, slo: Slo | None = None
) -> tuple[list[Recommendation], Verdict]:
    """What to ship; where nothing passed, the best of what was only measured, which is no recommendation."""
    found = recommendations(cells, measurements, slo)
    if found:
        return found, "passed"
    return recommendations(cells, measurements, slo, "measured"), "measured"


def frontier(cells: pl.DataFrame, measurements: pl.DataFrame) -> pl.DataFrame:
    """What each latency limit allows: for each model on each device the stable online points of cells that
    passed which no other beats in both throughput and p99; the fastest first."""
    points = _of_verdict(cells, measurements, "passed").filter((pl.col("scenario") == "online") & CLOSED)
    ranked = points.sort(["throughput", "p99_ms"], descending=[True, False])
    least = pl.col("p99_ms").cum_min().shift(1).over(OF_MODEL)
    return ranked.filter(least.is_null() | (pl.col("p99_ms") < least))


CLOSED = pl.col("stable") & pl.col("request_rate").is_null()
"""The stable points at a concurrency."""


def _answers(objective: Objective) -> pl.Expr:
    """Which points an objective chooses from."""
    if objective.slo is None:
        return CLOSED
    if objective.at_rate:
        return (
            pl.col("slo_best") & pl.col("request_rate").is_not_null() & (pl.col("slo") == str(objective.slo))
        )
    return CLOSED & (pl.col(objective.slo.column) <= objective.slo.limit_ms)


def _of_verdict(cells: pl.DataFrame, measurements: pl.DataFrame, verdict: Verdict) -> pl.DataFrame:
    """The points of the cells with a verdict, each with its cell's accuracy."""
    of_verdict = cells.filter(pl.col("verdict") == verdict)
    accuracy = of_verdict.select(*OF_CELL, "metric", "served_metric", "metric_drop")
    return measurements.drop_nulls(REQUIRED).join(accuracy, on=OF_CELL, nulls_equal=True)


def _recommendation(objective: Objective, best_of_cell: pl.DataFrame) -> Recommendation:
    first = best_of_cell.row(0, named=True)
    lead = None
    if best_of_cell.height > 1:
        ratio = first[objective.column] / best_of_cell.row(1, named=True)[objective.column]
        lead = (ratio if objective.most else 1 / ratio) - 1
    windows = (first[objective.windows] or [])[-STABLE_WINDOWS:]
    fields = {name: first[name] for name in Recommendation.model_fields if name in first}
    fields["failed_checks"] = first["failed_checks"] or ()
    return Recommendation(
        objective=objective.title,
        column=objective.column,
        lead=lead,
        spread=spread(windows) if windows else None,
        **fields,
    )


def other_checks(failed_checks: Sequence[str] | None) -> list[str]:
    """The checks of the trust card that a point fails beside `stability`, which its `stable` tells."""
    return [name for name in failed_checks or () if name != "stability"]


def lead_text(chosen: Recommendation) -> str:
    """The lead in words, and whether it is more than noise; before it what speaks against the point itself:
    the other checks that it fails, and that it is not stable."""
    failed = other_checks(chosen.failed_checks)
    against = [f"fails {', '.join(failed)}"] if failed else []
    if not chosen.stable:
        against.append("not stable")
    return "; ".join([*against, _lead(chosen)])


def _lead(chosen: Recommendation) -> str:
    if chosen.lead is None:
        return "the only one"
    text = f"{chosen.lead:+.1%} over the next cell"
    if chosen.spread is not None and chosen.lead <= chosen.spread:
        return f"{text}, within the {chosen.spread:.1%} that its own windows lie apart"
    return text
