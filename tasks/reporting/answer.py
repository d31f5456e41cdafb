"""What to ship: the one calculation behind every form of the report."""

from __future__ import annotations

import polars as pl

from tasks.core.values import Value


class Choice(Value):
    """The best measured point of one aim among cells that passed, and its lead over the next cell."""

    aim: str
    model: str
    cell: str
    format: str
    precision: str
    instances: int
    batch: int
    concurrency: int
    throughput: float
    p99_ms: float
    metric: str
    served_metric: float
    lead: float | None

    @property
    def sentence(self) -> str:
        """The whole in one line."""
        return (
            f"{self.aim}: {self.cell}, {self.instances} instance(s), batch {self.batch} x "
            f"{self.concurrency}: {self.throughput:.1f} inferences/s, p99 {self.p99_ms:.2f} ms, "
            f"{self.metric} {self.served_metric:.4f} ({lead_text(self)})"
        )


def choices(cells: pl.DataFrame, measurements: pl.DataFrame) -> list[Choice]:
    """For each model: the stable point of most throughput offline and online, and of least p99 online."""
    passed = cells.filter(pl.col("verdict") == "passed").select("cell", "metric", "served_metric")
    points = measurements.filter(pl.col("stable")).join(passed, on="cell")
    found = []
    for model in points["model"].unique(maintain_order=True):
        of_model = points.filter(pl.col("model") == model)
        for aim, scenario, column, descending in (
            ("most throughput, offline", "offline", "throughput", True),
            ("most throughput, online", "online", "throughput", True),
            ("least p99 latency, online", "online", "p99_ms", False),
        ):
            ranked = of_model.filter(pl.col("scenario") == scenario).sort(column, descending=descending)
            best_of_cell = ranked.unique("cell", keep="first", maintain_order=True)
            if best_of_cell.is_empty():
                continue
            best = best_of_cell.row(0, named=True)
            lead = None
            if best_of_cell.height > 1:
                ratio = best[column] / best_of_cell.row(1, named=True)[column]
                lead = (ratio if descending else 1 / ratio) - 1
            fields = {name: best[name] for name in Choice.model_fields if name in best}
            found.append(Choice(aim=aim, lead=lead, **fields))
    return found


def lead_text(choice: Choice) -> str:
    """The lead in words."""
    return "the only one" if choice.lead is None else f"{choice.lead:+.1%} over the next cell"
