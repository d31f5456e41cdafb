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
SAID = ("model", "format", "precision", "instances", "batch", "throughput", "p99_ms")
"""What an answer says of its point: one whose row lacks any of it, being damaged, answers nothing."""


NOTHING = "Nothing: no cell passed with a stable point."
UNPROVEN = (
    "Nothing: no cell passed. Below is the best of what was measured only: no metric has proven it, so it is "
    "no recommendation."
)


class Aim(Value):
    """One question: the most or the least of a column, among the points of a scenario under a limit: those at
    a concurrency or, `at_rate`, the highest request rate of each cell that holds the limit."""

    title: str
    scenario: Scenario
    column: str
    windows: str
    most: bool
    slo: Slo | None = None
    at_rate: bool = False


AIMS = (
    Aim(
        title="most throughput, offline",
        scenario="offline",
        column="throughput",
        windows="windows_throughput",
        most=True,
    ),
    Aim(
        title="most throughput, online",
        scenario="online",
        column="throughput",
        windows="windows_throughput",
        most=True,
    ),
    Aim(
        title="least p99 latency, online",
        scenario="online",
        column="p99_ms",
        windows="windows_avg_ms",
        most=False,
    ),
)


class Choice(Value):
    """The best measured point of one aim among the cells of a verdict, and its lead over the next cell.

    `spread` is how far the point's own last three windows lie apart: a smaller lead tells nothing.
    """

    aim: str
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
            f"{self.aim}: {self.cell}, {self.instances} instance(s), "
            f"{load_in_words(self.model_dump())}: {self.throughput:.1f} inferences/s, "
            f"p99 {self.p99_ms:.2f} ms, {self.accuracy} ({lead_text(self)})"
        )


def under(slo: Slo) -> tuple[Aim, Aim]:
    """The aims of a service-level objective: of so many clients, and of requests that come when they come."""
    within = f"{slo.statistic} at most {slo.limit_ms:g} ms"
    closed = AIMS[1].model_copy(update={"title": f"most throughput, online, {within}", "slo": slo})
    title = f"highest request rate, online, {within}"
    return closed, closed.model_copy(update={"title": title, "column": "request_rate", "at_rate": True})


def choices(
    cells: pl.DataFrame,
    measurements: pl.DataFrame,
    slo: Slo | None = None,
    verdict: Verdict = "passed",
) -> list[Choice]:
    """For each model on each device the point of every aim, among the cells with that verdict: a stable one,
    but for a rate, of which the search for it has decided.

    An aim that no point meets has no choice.
    """
    points = _of_verdict(cells, measurements, verdict)
    aims = AIMS if slo is None else (*AIMS, *under(slo))
    found = []
    for _, of_model in points.group_by(OF_MODEL, maintain_order=True):
        for aim in aims:
            candidates = of_model.filter((pl.col("scenario") == aim.scenario) & _answers(aim))
            ranked = candidates.sort(aim.column, descending=aim.most)
            best_of_cell = ranked.unique("cell", keep="first", maintain_order=True)
            if not best_of_cell.is_empty():
                found.append(_choice(aim, best_of_cell))
    return found


def best(
    cells: pl.DataFrame, measurements: pl.DataFrame, slo: Slo | None = None
) -> tuple[list[Choice], Verdict]:
    """What to ship; where nothing passed, the best of what was only measured, which is no recommendation."""
    found = choices(cells, measurements, slo)
    if found:
        return found, "passed"
    return choices(cells, measurements, slo, "measured"), "measured"


def frontier(cells: pl.DataFrame, measurements: pl.DataFrame) -> pl.DataFrame:
    """What each latency limit allows: for each model on each device the stable online points of cells that
    passed which no other beats in both throughput and p99; the fastest first."""
    points = _of_verdict(cells, measurements, "passed").filter((pl.col("scenario") == "online") & CLOSED)
    ranked = points.sort(["throughput", "p99_ms"], descending=[True, False])
    least = pl.col("p99_ms").cum_min().shift(1).over(OF_MODEL)
    return ranked.filter(least.is_null() | (pl.col("p99_ms") < least))


CLOSED = pl.col("stable") & pl.col("request_rate").is_null()
"""The stable points at a concurrency."""


def _answers(aim: Aim) -> pl.Expr:
    """Which points an aim chooses from."""
    if aim.slo is None:
        return CLOSED
    if aim.at_rate:
        return pl.col("slo_best") & pl.col("request_rate").is_not_null() & (pl.col("slo") == str(aim.slo))
    return CLOSED & (pl.col(aim.slo.column) <= aim.slo.limit_ms)


def _of_verdict(cells: pl.DataFrame, measurements: pl.DataFrame, verdict: Verdict) -> pl.DataFrame:
    """The points of the cells with a verdict, each with its cell's accuracy."""
    of_verdict = cells.filter(pl.col("verdict") == verdict)
    accuracy = of_verdict.select(*OF_CELL, "metric", "served_metric", "metric_drop")
    return measurements.drop_nulls(SAID).join(accuracy, on=OF_CELL, nulls_equal=True)


def _choice(aim: Aim, best_of_cell: pl.DataFrame) -> Choice:
    first = best_of_cell.row(0, named=True)
    lead = None
    if best_of_cell.height > 1:
        ratio = first[aim.column] / best_of_cell.row(1, named=True)[aim.column]
        lead = (ratio if aim.most else 1 / ratio) - 1
    windows = (first[aim.windows] or [])[-STABLE_WINDOWS:]
    fields = {name: first[name] for name in Choice.model_fields if name in first}
    fields["failed_checks"] = first["failed_checks"] or ()
    return Choice(
        aim=aim.title, column=aim.column, lead=lead, spread=spread(windows) if windows else None, **fields
    )


def other_checks(failed_checks: Sequence[str] | None) -> list[str]:
    """The checks of the trust card that a point fails beside `stability`, which its `stable` tells."""
    return [name for name in failed_checks or () if name != "stability"]


def lead_text(choice: Choice) -> str:
    """The lead in words, and whether it is more than noise; before it what speaks against the point itself:
    the other checks that it fails, and that it is not stable."""
    failed = other_checks(choice.failed_checks)
    against = [f"fails {', '.join(failed)}"] if failed else []
    if not choice.stable:
        against.append("not stable")
    return "; ".join([*against, _lead(choice)])


def _lead(choice: Choice) -> str:
    if choice.lead is None:
        return "the only one"
    text = f"{choice.lead:+.1%} over the next cell"
    if choice.spread is not None and choice.lead <= choice.spread:
        return f"{text}, within the {choice.spread:.1%} that its own windows lie apart"
    return text
