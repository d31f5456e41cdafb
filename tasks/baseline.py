"""Stage `baseline`: latency of the framework itself, without a server, at the offline batch sizes."""

from __future__ import annotations

from typing import get_args

from servegrid.domain.plugins import Plugin
from servegrid.domain.values import ArtifactRef, Cell, ModelFile
from servegrid.host.environment import host, versions
from servegrid.store.build import Workplace, build, read_json
from servegrid.store.store import BuildRequest, present_inputs
from tasks.caching import build_task

VERSION = 2

Baseline = dict[int, float]
"""Batch size -> average latency in ms of a synchronous call with NumPy arrays in and out."""


def measured(plugin: Plugin, cell: Cell) -> bool:
    """Whether there is a baseline: a model file is run on the CPU only, which says nothing of a GPU."""
    return cell.dynamic.device_kind == "cpu" or plugin.spec.framework not in get_args(ModelFile)


def request(
    plugin: Plugin, cell: Cell, prepared: ArtifactRef | None, samples: ArtifactRef, campaign: str
) -> BuildRequest:
    """What the baseline reads, and the campaign and host: it is a measurement, so only the cells of one
    campaign on one host, which would all measure the same network, share it."""
    return BuildRequest(
        stage="baseline",
        version=VERSION,
        fields={
            "framework": plugin.spec.framework,
            "device": cell.dynamic.device_kind,
            "parameters": cell.product.parameters,
            "interface": plugin.spec.interface(cell.product.parameters).model_dump(mode="json"),
            "batch_sizes": list(cell.offline.batch_sizes),
            "campaign": campaign,
            "host": host().name,
            "profile": cell.profile,
        },
        inputs=present_inputs(prepared=prepared, samples=samples),
        sources=plugin.sources("model.py"),
        libraries=versions(plugin.spec.requires),
    )


@build_task
def baseline(request: BuildRequest, at: Workplace) -> ArtifactRef:
    """Measure the framework (fp32) in a child process, alone on the device."""
    return build(request, at, alone=True)


def read(ref: ArtifactRef, at: Workplace) -> Baseline:
    """The measured latencies."""
    found = read_json(at.site.store.path(ref) / "baseline.json")
    return {int(batch): float(entry["avg_ms"]) for batch, entry in found.items()}
