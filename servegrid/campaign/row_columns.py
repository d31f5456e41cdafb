"""The columns of a row: of its cell, its serving, its load plan and its roofline."""

from __future__ import annotations

import json

from servegrid.campaign.results import Row
from servegrid.domain.roofline import Roofline
from servegrid.domain.values import Cell, LoadPlan, Precision, Serving
from servegrid.host.environment import Host


def common(campaign: str, cell: Cell, host: Host, versions: dict[str, str]) -> Row:
    """The columns that every row of a cell begins with."""
    product = cell.product
    row: Row = {
        "campaign": campaign,
        "cell": cell.name,
        "profile": cell.profile,
        "settings": list(cell.settings),
        "gpu": host.gpu,
        "cpu": host.cpu,
        "host": host.name,
        "versions": json.dumps(versions, sort_keys=True),
        "environment": host.model_dump_json(),
    }
    fields = product.model_dump(mode="json", exclude={"parameters"})
    return row | fields | {"parameters": json.dumps(product.parameters, sort_keys=True)}


def serving_columns(serving: Serving) -> Row:
    """The columns of a point's serving."""
    return serving.model_dump(mode="json")


def plan_columns(plan: LoadPlan) -> Row:
    """The columns of a point's load plan."""
    names = {"scenario", "shared_memory", "input_data", "warm_up", "slo"}
    kept = plan.model_dump(mode="json", include=names)
    return kept | {"minimum_request_count": plan.request_count, "minimum_window_s": plan.window_s}


def roofline_columns(roofline: Roofline | None, precision: Precision, serving: Serving, row: Row) -> Row:
    """A point's roofline: the most inferences/s, what sets it, and the share that was reached."""
    limit = roofline.limit(precision, serving.largest_batch(row["batch"])) if roofline else None
    if roofline is None or limit is None:
        return {}
    return {
        "flops_per_inference": roofline.count.flops,
        "limit_throughput": limit.throughput,
        "limit": limit.kind,
        "share_of_limit": row["throughput"] / limit.throughput,
    }


def cell_columns(cell: Cell) -> Row:
    """The columns of a cell's servings and load plans, each as JSON."""
    return {
        name: getattr(cell, name).model_dump_json() for name in ("static", "dynamic", "offline", "online")
    }
