"""Where the files of a campaign lie.

results/<campaign>/             its options, rows, tables and report
results/<campaign>/<profile>/   logs, predictions and model repositories of the cells on one profile
"""

from __future__ import annotations

from pathlib import Path

from servegrid.domain.values import Value

OPTIONS = "campaign.json"
ROWS = "rows.jsonl"
CELLS = "cells.parquet"


class ProfileLayout(Value):
    """The folder of one profile."""

    folder: Path

    @property
    def logs(self) -> Path:
        """The folder of the logs; their names begin with the cell's."""
        return self.folder / "logs"

    def server_log(self, cell: str) -> Path:
        """What the cell's server printed."""
        return self.logs / f"{cell}.tritonserver.log"

    def error_log(self, cell: str) -> Path:
        """The traceback of an error of servegrid itself."""
        return self.logs / f"{cell}.error.log"

    def predictions(self, cell: str) -> Path:
        """The folder of the cell's predictions, inputs and metrics."""
        return self.folder / "predictions" / cell

    def claim(self, cell: str) -> Path:
        """The lease of the run that works on the cell."""
        return self.folder / "claims" / f"{cell}.lock"

    def repository(self, cell: str) -> Path:
        """The cell's model repository."""
        return self.folder / "repositories" / cell

    def holds(self, cell: str) -> bool:
        """Whether there are files of the cell."""
        return self.repository(cell).is_dir() or any(self.logs.glob(f"{cell}.*"))


class CampaignLayout(Value):
    """The folder of a campaign."""

    folder: Path

    @property
    def options(self) -> Path:
        """The options, the attempt and the cells."""
        return self.folder / OPTIONS

    @property
    def leader(self) -> Path:
        """The lease of the process that leads the campaign."""
        return self.folder / "leader.lock"

    def run(self, run: str) -> Path:
        """The lease of a `qualify` run, by the id of its flow run."""
        return self.folder / "runs" / f"{run}.lock"

    @property
    def rows(self) -> Path:
        """The rows, one JSON object a line."""
        return self.folder / ROWS

    @property
    def cells(self) -> Path:
        """The table of the cells."""
        return self.folder / CELLS

    @property
    def measurements(self) -> Path:
        """The table of the measured points."""
        return self.folder / "measurements.parquet"

    def published_columns(self, scenario: str) -> Path:
        """The points of a scenario in the columns of the published tables."""
        return self.folder / f"{scenario}.csv"

    @property
    def accuracy(self) -> Path:
        """Every metric of every cell."""
        return self.folder / "accuracy.csv"

    @property
    def published(self) -> Path:
        """The points as sections in the form of the published documents."""
        return self.folder / "published.md"

    @property
    def report(self) -> Path:
        """The report as a page."""
        return self.folder / "report.html"

    @property
    def markdown(self) -> Path:
        """The report as Markdown."""
        return self.folder / "report.md"

    @property
    def charts(self) -> Path:
        """The folder of the charts as images."""
        return self.folder / "charts"

    def trace(self, suffix: str) -> Path:
        """The settings that `tune` tried: `csv` or `parquet`."""
        return self.folder / f"trace.{suffix}"

    def profile(self, name: str) -> ProfileLayout:
        """The folder of one profile."""
        return ProfileLayout(folder=self.folder / name)

    def written(self, profile: str, cell: str) -> ProfileLayout:
        """The folder that has the files of a cell that ran.

        Campaigns of one profile had them directly below the campaign until every profile got a folder.
        """
        own, older = self.profile(profile), ProfileLayout(folder=self.folder)
        return older if older.holds(cell) and not own.holds(cell) else own
