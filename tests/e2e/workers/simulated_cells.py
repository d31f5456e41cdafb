"""The flow `qualify` on simulated cards: its cells build a small file a product, and then only wait, for
SIMULATED_CELL_S seconds. A deployment of the tests names it; real workers run it."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Any

import flows.cell as cells
from flows.qualify import qualify
from servegrid.checks.invariance import Invariance
from servegrid.checks.verdict import Correctness
from servegrid.domain.arrays import TensorMatch
from servegrid.store.job import Fields
from servegrid.store.store import BuildRequest
from tasks.caching import build_task, ensure

__all__ = ["qualify"]

CELL_S = float(os.environ.get("SIMULATED_CELL_S", "1"))
BUILD_S = float(os.environ.get("SIMULATED_BUILD_S", "0.5"))
RIGHT = TensorMatch(output="y", largest_difference=0.0, excess=0, least_cosine=None, agreement=1.0)


@build_task
def build(request: BuildRequest, at: Any) -> Any:
    def write(folder: Path) -> None:
        time.sleep(BUILD_S)
        (folder / "file").write_text(request.key)
        with (at.logs / "simulated_builds").open("a") as file:
            file.write(f"{request.stage} {request.sources['of']}\n")

    at.logs.mkdir(parents=True, exist_ok=True)
    return at.site.store.build(request, write)


def build_cell(plugin: Any, cell: Any, campaign: str, at: Any, make: Any = ensure) -> Any:
    """An artifact of the export, and one of the product made of it."""
    product = cell.product
    exported = BuildRequest(stage="export", fields=Fields(), sources={"of": product.export_format})
    first = make(build, exported, at)
    converted = BuildRequest(
        stage="convert", fields=Fields(), inputs={"export": first}, sources={"of": product.model_dump_json()}
    )
    second = make(build, converted, at)
    return cells.Built(
        prepared=None,
        converted=second,
        samples=first,
        reference=first,
        converted_answers=None,
        baseline=None,
        ceilings=None,
    )


def measure_cell(plugin: Any, cell: Any, built: Any, choice: Any, at: Any, result: Any, **_: Any) -> None:
    time.sleep(CELL_S)
    result.correctness = Correctness(
        tensors=(RIGHT,), scores=None, invariance=Invariance(neighbour=(RIGHT,)), clients=8, batches={}
    )


cells.build_cell, cells.measure_cell = build_cell, measure_cell  # type: ignore[assignment]
