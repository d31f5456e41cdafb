"""Recommendations: one calculation for every form of the report."""

from __future__ import annotations

from collections.abc import Sequence

import polars as pl

from servegrid.campaign.columns import load_in_words
from servegrid.campaign.results import Verdict
from servegrid.domain.slo import Slo
from servegrid.domain.values import Scenario, Value
from servegrid.loadgen.trust import CONTENTION
from servegrid.reporting.leads import Lead, lead_over

OF_CELL = ("cell", "profile")
"""The key of a cell in a campaign, which may run the cell on several devices."""
OF_MODEL = ("model", "profile", "gpu")
"""A recommendation is made for each of these."""
REQUIRED = ("model", "format", "precision", "instances", "batch", "throughput", "p99_ms")
"""Columns that a recommendation shows; a row that lacks one is damaged and is left out."""


NOTHING = "Nothing: no cell passed with a stable point."
UNPROVEN = (
    "Nothing: no cell passed. The best measured cells follow. No task metric was computed for them: they are "
    "no recommendations."
)


class Objective(Value):
    """The highest (`most`) or lowest value of a column among the points of a scenario, within an SLO if there
    is one: closed-loop points or, `at_rate`, the highest request rate of each cell that meets the SLO."""

    title: str
    scenario: Scenario
    column: str
    windows: str
    most: bool
    slo: Slo | None = None
    at_rate: bool = False


OBJECTIVES = (
    Objective(
        title="best offline throughput",
        scenario="offline",
        column="throughput",
        windows="windows_throughput",
        most=True,
    ),
    Objective(
        title="best online throughput",
        scenario="online",
        column="throughput",
        windows="windows_throughput",
        most=True,
    ),
    Objective(
        title="lowest online p99 latency",
        scenario="online",
        column="p99_ms",
        windows="windows_avg_ms",
        most=False,
    ),
)


class Recommendation(Value):
    """The best measured point of one objective among the cells of a verdict, and its lead over the next cell.

    `rivals`: how many other cells have such a point; `left_out`: cells whose points were all measured under
    contention. They are not compared; if all cells are such, there is no lead.
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
    lead: Lead | None
    rivals: int = 0
    left_out: tuple[str, ...] = ()

    @property
    def accuracy(self) -> str:
        """The served model's metric as text."""
        return "no metric" if self.served_metric is None else f"{self.metric} {self.served_metric:.4f}"

    @property
    def load(self) -> tuple[str, str]:
        """The load of the point: its kind and its value."""
        if self.request_rate is None:
            return "concurrency", str(self.concurrency)
        return "requests/s", f"{self.request_rate:g}"

    @property
    def sentence(self) -> str:
        """The recommendation in one line."""
        return (
            f"{self.objective[0].upper()}{self.objective[1:]}: {self.cell}, {self.instances} instance(s), "
            f"{load_in_words(self.model_dump())}: {self.throughput:.1f} inferences/s, "
            f"p99 {self.p99_ms:.2f} ms, {self.accuracy} ({lead_text(self)})"
        )


def under(slo: Slo) -> tuple[Objective, Objective]:
    """The objectives of an SLO: for a closed loop (concurrency), and for an open loop (request rate)."""
    within = f"{slo.statistic} at most {slo.limit_ms:g} ms"
    closed = OBJECTIVES[1].model_copy(update={"title": f"best online throughput, {within}", "slo": slo})
    title = f"highest online request rate, {within}"
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
            if not candidates.is_empty():
                found.append(_choose(objective, candidates))
    return found


def _choose(objective: Objective, candidates: pl.DataFrame) -> Recommendation:
    """The best of the points that were measured without contention; of all, where there are none."""
    undisturbed = candidates.filter(~CONTENDED)
    cells = candidates["cell"].unique(maintain_order=True)
    compared = candidates if undisturbed.is_empty() else undisturbed
    ranked = compared.sort(objective.column, descending=objective.most)
    best_of_cell = ranked.unique("cell", keep="first", maintain_order=True)
    left_out = tuple(name for name in cells if name not in best_of_cell["cell"])
    found = _recommendation(objective, best_of_cell)
    lead = None if undisturbed.is_empty() else found.lead
    return found.model_copy(update={"lead": lead, "left_out": left_out, "rivals": best_of_cell.height - 1})


def best(
    cells: pl.DataFrame, measurements: pl.DataFrame, slo: Slo | None = None
) -> tuple[list[Recommendation], Verdict]:
    """Recommendations; where no cell passed, the best cells with the verdict `measured`, which are none."""
    found = recommendations(cells, measurements, slo)
    if found:
        return found, "passed"
    return recommendations(cells, measurements, slo, "measured"), "measured"


def frontier(cells: pl.DataFrame, measurements: pl.DataFrame) -> pl.DataFrame:
    """The Pareto front of throughput and p99 for each model on each device: stable online points of cells
    that passed, the highest throughput first."""
    points = _of_verdict(cells, measurements, "passed").filter((pl.col("scenario") == "online") & CLOSED)
    ranked = points.sort(["throughput", "p99_ms"], descending=[True, False])
    least = pl.col("p99_ms").cum_min().shift(1).over(OF_MODEL)
    return ranked.filter(least.is_null() | (pl.col("p99_ms") < least))


CONTENDED = pl.col("failed_checks").list.contains(CONTENTION).fill_null(False)
"""The points during which other programs took the host's cores."""
CLOSED = pl.col("stable") & pl.col("request_rate").is_null()
"""The stable points at a concurrency."""


def _answers(objective: Objective) -> pl.Expr:
    """The points that an objective chooses from."""
    if objective.slo is None:
        return CLOSED
    if objective.at_rate:
        return (
            pl.col("slo_best")
            & pl.col("request_rate").is_not_null()
            & (pl.col("slo") == str(objective.slo))
            & (pl.col("stable") | (pl.col("verdict") != "unstable"))
        )
    return CLOSED & (pl.col(objective.slo.column) <= objective.slo.limit_ms)


def _of_verdict(cells: pl.DataFrame, measurements: pl.DataFrame, verdict: Verdict) -> pl.DataFrame:
    """The points of the cells with a verdict, each with its cell's accuracy.

    A correct cell that is unstable in one scenario counts as passed with its stable points of the other.
    """
    proven = (pl.col("verdict") == "unstable") & pl.col("served_metric").is_not_null()
    of_verdict = cells.filter((pl.col("verdict") == verdict) | (proven & (verdict == "passed")))
    accuracy = of_verdict.select(
        *OF_CELL, "verdict", "metric", "served_metric", "metric_drop", "artifact_bytes"
    )
    return measurements.drop_nulls(REQUIRED).join(accuracy, on=OF_CELL, nulls_equal=True)


def _recommendation(objective: Objective, best_of_cell: pl.DataFrame) -> Recommendation:
    first = best_of_cell.row(0, named=True)
    lead = None
    if best_of_cell.height > 1:
        second = best_of_cell.row(1, named=True)
        lead = lead_over(objective.column, objective.windows, most=objective.most, first=first, second=second)
    fields = {name: first[name] for name in Recommendation.model_fields if name in first}
    fields["failed_checks"] = first["failed_checks"] or ()
    return Recommendation(
        objective=objective.title,
        column=objective.column,
        lead=lead,
        **fields,
    )


def other_checks(failed_checks: Sequence[str] | None) -> list[str]:
    """The trust checks that a point fails, but `stability`, which is its field `stable`."""
    return [name for name in failed_checks or () if name != "stability"]


def lead_text(chosen: Recommendation) -> str:
    """The trust checks that the point fails, then its lead over the next cell."""
    failed = other_checks(chosen.failed_checks)
    against = [f"failed checks: {', '.join(failed)}"] if failed else []
    if not chosen.stable:
        against.append("not stable")
    unknown = (
        [f"not compared, for other programs ran: {', '.join(chosen.left_out)}"] if chosen.left_out else []
    )
    return "; ".join([*against, _lead(chosen), *unknown])


def _lead(chosen: Recommendation) -> str:
    if chosen.lead is None and chosen.rivals:
        return "no lead can be given: other programs ran while the cells were measured"
    if chosen.lead is None:
        return "the only cell" if not chosen.left_out else "the only cell measured undisturbed"
    return chosen.lead.text
