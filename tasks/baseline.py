"""Stage `baseline`: latency of the framework itself, without a server, at the offline batch sizes."""

from __future__ import annotations

from typing import get_args

from servegrid.domain.plugins import Plugin
from servegrid.domain.values import ArtifactRef, Cell, ModelFile
from servegrid.frameworks.fields import BaselineFields
from servegrid.frameworks.networks import FRAMEWORKS
from servegrid.frameworks.steps import code
from servegrid.host.environment import host, versions
from servegrid.store.build import Workplace, build, read_json
from servegrid.store.sources import plugin_sources
from servegrid.store.store import BuildRequest, present_inputs
from tasks.caching import build_task

Baseline = dict[int, float]
"""Batch size -> average latency in ms of a synchronous call with NumPy arrays in and out."""


def measured(plugin: Plugin, cell: Cell) -> bool:
    """Whether there is a baseline: a model file runs on the CPU only, which is no baseline for a GPU."""
    return cell.dynamic.device_kind == "cpu" or plugin.spec.framework not in get_args(ModelFile)


def request(
    plugin: Plugin, cell: Cell, prepared: ArtifactRef | None, samples: ArtifactRef, campaign: str
) -> BuildRequest:
    """The network, the samples and the batch sizes; as a measurement it is shared only by the cells of one
    campaign on one host."""
    spec, parameters = plugin.spec, cell.product.parameters
    return BuildRequest(
        stage="baseline",
        code=code("baseline", FRAMEWORKS[spec.framework]),
        fields=BaselineFields(
            parameters=parameters,
            framework=spec.framework,
            interface=spec.interface(parameters),
            device=cell.dynamic.device_kind,
            batch_sizes=cell.offline.batch_sizes,
            campaign=campaign,
            host=host().name,
            profile=cell.profile,
        ),
        inputs=present_inputs(prepared=prepared, samples=samples),
        sources=plugin_sources(plugin),
        libraries=versions(spec.requires),
        alone=True,
    )


@build_task
def baseline(request: BuildRequest, at: Workplace) -> ArtifactRef:
    """Measure the framework (fp32) in a child process, alone on the device."""
    return build(request, at)


def read(ref: ArtifactRef, at: Workplace) -> Baseline:
    """The measured latencies."""
    found = read_json(at.site.store.path(ref) / "baseline.json")
    return {int(batch): float(entry["avg_ms"]) for batch, entry in found.items()}
